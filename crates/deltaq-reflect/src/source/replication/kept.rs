//! The place that outlives the process. A clean stop writes it into the comment of the publication, and the next start goes on from it
//! instead of copying the table again.
//!
//! Invariant: a place counts only if nothing has happened since it was written: the server, its timeline, the slot, the table and the
//! queue are the same, and the queue has had no call of the source since. A queue that has lost changes has another number of calls.

use serde::{Deserialize, Serialize};

use super::pgoutput::Lsn;
use super::place::Place;
use super::session::{Session, get};
use super::slot::{MADE, Names, Status};
use super::snapshot::{Seen, Snapshot};
use super::transactions::Point;
use crate::source::Error;
use crate::source::sql::quoted;

const COMMENT: &str = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = $1 AND starts_with(obj_description(oid, 'pg_publication'), $2)";

/// What the queue had from the source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QueueState {
    /// The id of the queue.
    pub(crate) incarnation: String,
    /// The number of the last call of the source.
    pub(crate) sequence: u64,
}

/// A place, as the comment has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    system: String,
    timeline: String,
    slot: String,
    /// Where the slot stands.
    position: String,
    /// The point that was reached: the end of a transaction, and how many changes of the next one precede it.
    reached: String,
    changes: u64,
    /// What the last copy has seen: a snapshot, and a position behind it.
    snapshot: String,
    seen_before: String,
    pub(super) shape: String,
    pub(super) queue: QueueState,
    /// When the next list is due, in microseconds since 1970.
    pub(super) relist_at_us: u64,
}

impl Kept {
    pub(super) fn new(
        place: &Place,
        names: &Names,
        (point, seen): (Point, &Seen),
        shape: &str,
        (queue, relist_at_us): (QueueState, u64),
    ) -> Self {
        let (system, timeline) = place.server();
        Self {
            system: system.to_owned(),
            timeline: timeline.to_owned(),
            slot: names.slot.clone(),
            position: place.confirmed().to_string(),
            reached: point.reached.to_string(),
            changes: point.changes,
            snapshot: seen.snapshot.to_string(),
            seen_before: seen.before.to_string(),
            shape: shape.to_owned(),
            queue,
            relist_at_us,
        }
    }

    /// The place that a clean stop has written; `None` if there is none.
    pub(super) async fn read(session: &mut Session, names: &Names) -> Result<Option<Self>, Error> {
        let rows = session.rows(COMMENT, &[&names.publication, MADE]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let comment: String = get(row, 0)?;
        Ok(comment.strip_prefix(MADE).and_then(|text| serde_json::from_str(text.trim_start()).ok()))
    }

    /// Writes the place, unless the publication is one that somebody else has made.
    pub(super) async fn write(&self, session: &mut Session, names: &Names) -> Result<(), Error> {
        if session.rows(COMMENT, &[&names.publication, MADE]).await?.is_empty() {
            return Ok(());
        }
        let text =
            serde_json::to_string(self).map_err(|error| Error::because("the place is no JSON", error))?;
        let text = format!("{MADE} {text}").replace('\'', "''");
        session
            .run(&format!(
                "BEGIN; SET LOCAL standard_conforming_strings = on; COMMENT ON PUBLICATION {} IS '{text}'; COMMIT",
                quoted(&names.publication)
            ))
            .await
    }

    /// The place, the point that was reached and what the last copy has seen, if the server and the slot are those of the place.
    pub(super) fn fits(&self, status: &Status, names: &Names) -> Option<(Place, Point, Seen)> {
        let (position, reached) = (Lsn::parse(&self.position)?, Lsn::parse(&self.reached)?);
        let place = Place::of(self.system.clone(), self.timeline.clone(), position);
        if place.misfit(status, position.max(reached)).is_some() || self.slot != names.slot {
            return None;
        }
        let snapshot = Snapshot::parse(&self.snapshot)?;
        let seen = Seen { snapshot, before: Lsn::parse(&self.seen_before)? };
        Some((place, Point { reached, changes: self.changes }, seen))
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::tests::status;
    use super::*;

    #[test]
    fn a_place_fits_only_its_own_server_and_slot() {
        let names = Names::new("q", "s", Some("mine"));
        let queue = QueueState { incarnation: "1".to_owned(), sequence: 2 };
        let place = Place::new(&status(), Lsn(100));
        let seen = Seen { snapshot: Snapshot::parse("10:13:11").unwrap(), before: Lsn(70) };
        let point = Point { reached: Lsn(120), changes: 3 };
        let kept = Kept::new(&place, &names, (point, &seen), "md5", (queue, 3));
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept);
        let (place, at, copied) = kept.fits(&status(), &names).unwrap();
        assert_eq!((place.confirmed(), at, copied), (Lsn(100), point, seen));
        // After a crash of the database, the slot may be at an earlier position. The stream leaves out what it repeats.
        let earlier = Status { confirmed: Some(Lsn(90)), ..status() };
        assert!(kept.fits(&earlier, &names).is_some());
        for other in [
            Status { system: "8".to_owned(), ..status() },
            Status { timeline: "00000002".to_owned(), ..status() },
            Status { is_lost: true, ..status() },
            Status { confirmed: None, ..status() },
            Status { confirmed: Some(Lsn(101)), ..status() },
            Status { end: Lsn(119), ..status() },
        ] {
            assert_eq!(kept.fits(&other, &names), None, "{other:?}");
        }
        assert_eq!(kept.fits(&status(), &Names::new("q", "s", Some("other"))), None);
    }
}
