//! The place of a stream in the log: which server, which timeline, and which position was reached.

use super::pgoutput::Lsn;
use super::slot::Status;

/// A place in the log of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    system: String,
    timeline: String,
    /// The position that this process has confirmed last.
    confirmed: Lsn,
}

impl Place {
    pub(super) fn new(status: &Status, confirmed: Lsn) -> Self {
        Self::of(status.system.clone(), status.timeline.clone(), confirmed)
    }

    pub(super) const fn of(system: String, timeline: String, confirmed: Lsn) -> Self {
        Self { system, timeline, confirmed }
    }

    /// The server and its timeline.
    pub(super) fn server(&self) -> (&str, &str) {
        (&self.system, &self.timeline)
    }

    /// The position that this process has confirmed last.
    pub(super) const fn confirmed(&self) -> Lsn {
        self.confirmed
    }

    /// Notes that the slot was moved.
    pub(super) fn confirm(&mut self, position: Lsn) {
        self.confirmed = self.confirmed.max(position);
    }

    /// Why the stream can't continue at this place, after everything before a position was read; `None` if it can.
    pub(super) fn misfit(&self, status: &Status, read_to: Lsn) -> Option<String> {
        if status.system != self.system {
            return Some("the server is another one than that of the last list".to_owned());
        }
        if status.timeline != self.timeline {
            return Some(format!(
                "the server has changed from timeline {} to {}",
                self.timeline, status.timeline
            ));
        }
        if status.is_lost {
            return Some(
                "the server has removed a part of the log that the slot needs (max_slot_wal_keep_size)"
                    .to_owned(),
            );
        }
        if status.end < read_to {
            let end = status.end;
            return Some(format!(
                "the log of the server ends at {end} and was read up to {read_to}, so an older state of the server was restored"
            ));
        }
        let Some(confirmed) = status.confirmed else { return Some("the slot is gone".to_owned()) };
        if confirmed > self.confirmed {
            return Some(format!(
                "the slot was confirmed up to {confirmed} by another process, and this one has confirmed {}",
                self.confirmed
            ));
        }
        None
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::snapshot::Snapshot;
    use super::*;

    pub(in super::super) fn status() -> Status {
        Status {
            end: Lsn(500),
            snapshot: Snapshot::parse("10:10:").unwrap(),
            system: "7".to_owned(),
            timeline: "00000001".to_owned(),
            confirmed: Some(Lsn(100)),
            kept: 0,
            limit: 2,
            is_lost: false,
            is_ours: true,
            is_active: false,
        }
    }

    #[test]
    fn a_place_fits_only_its_own_server_timeline_and_slot() {
        let mut place = Place::new(&status(), Lsn(100));
        let misfit = |place: &Place, status: &Status| place.misfit(status, Lsn(400));
        assert_eq!(misfit(&place, &status()), None);
        let why = |status: &Status| misfit(&place, status).unwrap();
        assert!(why(&Status { end: Lsn(399), ..status() }).contains("an older state"));
        assert!(why(&Status { system: "8".to_owned(), ..status() }).contains("another one"));
        assert!(why(&Status { timeline: "00000002".to_owned(), ..status() }).contains("timeline"));
        assert!(why(&Status { is_lost: true, ..status() }).contains("max_slot_wal_keep_size"));
        assert!(why(&Status { confirmed: None, ..status() }).contains("gone"));
        let ahead = Status { confirmed: Some(Lsn(200)), ..status() };
        assert!(why(&ahead).contains("0/C8"));
        place.confirm(Lsn(200));
        assert_eq!(misfit(&place, &ahead), None);
        assert_eq!(place.confirmed(), Lsn(200));
    }
}
