//! Which transactions a snapshot sees: the rule that joins the copy of a table with its stream, without gap or repeat.
//!
//! A transaction that the copy has seen is left out of the stream, and every other one is applied. This holds even if the
//! commit is in the log before other sessions see it, as with synchronous replication.

use std::fmt;

use super::pgoutput::Lsn;

/// What a copy has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) snapshot: Snapshot,
    /// A position behind everything that the snapshot sees. The log up to it is on the disk, so no crash takes it back and gives its numbers
    /// to other transactions.
    pub(super) before: Lsn,
}

impl Seen {
    /// Whether the copy has seen a transaction of the stream, which was committed at this position.
    pub(super) fn has(&self, commit: Lsn, xid: u32) -> bool {
        commit < self.before && self.snapshot.sees(xid)
    }
}

/// A snapshot, as `pg_current_snapshot()` writes it: `xmin:xmax:xip,xip`. Only transactions that are not part of another
/// one are in it, as in the stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    xmin: u64,
    xmax: u64,
    in_progress: Vec<u64>,
}

impl Snapshot {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax = parts.next()?.parse().ok()?;
        let ids = parts.next()?.split(',').filter(|id| !id.is_empty());
        let in_progress = ids.map(|id| id.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(Self { xmin, xmax, in_progress })
    }

    /// Whether the snapshot sees this transaction, which is committed. The stream has only the lower half of the number:
    /// no transaction is further than half of its range from the newest one.
    pub(super) fn sees(&self, xid: u32) -> bool {
        let xid = self.whole(xid);
        xid < self.xmin || xid < self.xmax && !self.in_progress.contains(&xid)
    }

    fn whole(&self, xid: u32) -> u64 {
        const EPOCH: u64 = 1 << 32;
        let near = (self.xmax & !(EPOCH - 1)) | u64::from(xid);
        if near > self.xmax + EPOCH / 2 {
            near.saturating_sub(EPOCH)
        } else if near + EPOCH / 2 < self.xmax {
            near + EPOCH
        } else {
            near
        }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<String> = self.in_progress.iter().map(ToString::to_string).collect();
        write!(f, "{}:{}:{}", self.xmin, self.xmax, ids.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_has_ended_before_it() {
        let snapshot = Snapshot::parse("100:105:100,103").unwrap();
        let seen: Vec<u32> = (98..108).filter(|xid| snapshot.sees(*xid)).collect();
        assert_eq!(seen, [98, 99, 101, 102, 104]);
        assert_eq!(snapshot.to_string(), "100:105:100,103");
        let quiet = Snapshot::parse("100:100:").unwrap();
        assert!(quiet.sees(99) && !quiet.sees(100));
        assert_eq!(Snapshot::parse("100:x:"), None);
        assert_eq!(Snapshot::parse("100"), None);
    }

    #[test]
    fn numbers_wrap_around() {
        let epoch = 1_u64 << 32;
        let snapshot = Snapshot::parse(&format!("{}:{}:{}", epoch - 2, epoch + 5, epoch + 3)).unwrap();
        let seen = [u32::MAX - 5, u32::MAX, 2, 3, 4, 5, 6].map(|xid| snapshot.sees(xid));
        assert_eq!(seen, [true, true, true, false, true, false, false]);
        // The newest transactions are of the epoch before.
        let before = Snapshot::parse(&format!("{}:{}:", epoch - 9, epoch - 1)).unwrap();
        assert!(!before.sees(1) && before.sees(u32::MAX - 20));
    }
}
