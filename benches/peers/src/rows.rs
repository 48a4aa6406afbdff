//! The rows of the table: their servers, loads, comparisons and targets.

use std::time::Duration;

use deltaq::bench::{Measured, Scenario};

use crate::drivers::{Ack, OBJECT_BYTES};
use crate::figures::{Figure, Target};
use crate::servers::{Kind, Storage};
use crate::subject::{Load, Subject};

/// The base of all loads: one new object per request on 64 connections.
pub(crate) const LOAD: Load = Load {
    scenario: Scenario::AddPop,
    ack: Ack::AtOnce,
    connections: 64,
    batch: 1,
    object_bytes: OBJECT_BYTES,
    rest: Duration::ZERO,
};
const BATCH_OF_100: Load = Load { connections: 8, batch: 100, ..LOAD };
/// The rest before each add of the scenario `hand-off` of `deltaq bench`.
const HAND_OFF_REST: Duration = Duration::from_millis(2);

/// A row: servers under a load, and one or several claims about them.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) claims: Vec<Claim>,
}

/// One line of the table.
pub(crate) struct Claim {
    /// The index of the measured subject.
    ours: usize,
    /// The index of the subject to compare with.
    baseline: usize,
    quantity: Quantity,
    target: Target,
}

/// A quantity of a measurement.
#[derive(Clone, Copy, Debug)]
enum Quantity {
    ObjectsPerSecond,
    P50,
}

/// A claim with its figures.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) unit: &'static str,
    pub(crate) ours: (String, Figure),
    pub(crate) baseline: (String, Figure),
    pub(crate) target: Target,
}

impl Line {
    /// The ratio of the medians.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours.1.median / self.baseline.1.median
    }
}

impl Quantity {
    fn unit(self) -> &'static str {
        match self {
            Self::ObjectsPerSecond => "objects/s",
            Self::P50 => "p50 µs",
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn of(self, measured: &Measured) -> f64 {
        match self {
            Self::ObjectsPerSecond => measured.rate(measured.objects),
            Self::P50 => measured.latencies().p50 as f64,
        }
    }
}

impl Claim {
    /// The line of this claim, from the results of each subject in each round.
    pub(crate) fn line(&self, subjects: &[Subject], results: &[Vec<Measured>]) -> Option<Line> {
        let figure = |index: usize| {
            let all = results.get(index)?.iter().map(|measured| self.quantity.of(measured));
            Some((subjects.get(index)?.name.clone(), Figure::of(all)?))
        };
        Some(Line {
            unit: self.quantity.unit(),
            ours: figure(self.ours)?,
            baseline: figure(self.baseline)?,
            target: self.target,
        })
    }
}

/// A claim about the throughput of the first subject compared with that of the subject `baseline`.
fn rate(baseline: usize, target: Target) -> Claim {
    Claim { ours: 0, baseline, quantity: Quantity::ObjectsPerSecond, target }
}

fn subject(name: &str, kind: Kind, storage: Storage, load: Load) -> Subject {
    Subject { name: name.to_owned(), kind, storage, load }
}

fn deltaq(name: &str, storage: Storage, load: Load) -> Subject {
    subject(name, Kind::Deltaq, storage, load)
}

/// All rows, in the order of the table.
pub(crate) fn rows() -> Vec<Row> {
    vec![
        add(),
        cycle(),
        batch(),
        fsync_cycle(),
        fsync_batch(),
        postgres_cycle(),
        postgres_batch(),
        forwarded(),
        hand_off(),
    ]
}

fn add() -> Row {
    let load = Load { scenario: Scenario::Add, ..LOAD };
    Row {
        name: "add",
        about: "one object per request, 64 connections, in memory; compared with an HTTP server that does nothing.",
        subjects: vec![
            deltaq("deltaq", Storage::Memory, load),
            subject("HTTP alone", Kind::Noop, Storage::Memory, load),
        ],
        claims: vec![rate(1, Target::AtLeast(0.85))],
    }
}

fn cycle() -> Row {
    let memory = Storage::Memory;
    let with_next = Load { ack: Ack::WithNext, ..LOAD };
    Row {
        name: "cycle",
        about: "add an object, then pop one and acknowledge the previous one; 64 connections, in memory. The other \
                servers need a third request for the acknowledgement. beanstalkd and Redis are also measured with the \
                acknowledgement in one write with the next read.",
        subjects: vec![
            deltaq("deltaq", memory, LOAD),
            subject("beanstalkd: put, reserve, delete", Kind::Beanstalkd, memory, LOAD),
            subject("Redis: XADD, XREADGROUP, XACK", Kind::Redis, memory, LOAD),
            subject("beanstalkd, delete with reserve", Kind::Beanstalkd, memory, with_next),
            subject("Redis, XACK with XREADGROUP", Kind::Redis, memory, with_next),
            subject("NATS JetStream", Kind::Nats, memory, LOAD),
        ],
        claims: vec![
            rate(1, Target::AtLeast(1.05)),
            rate(2, Target::AtLeast(1.05)),
            rate(3, Target::None),
            rate(4, Target::None),
            rate(5, Target::None),
        ],
    }
}

fn batch() -> Row {
    let memory = Storage::Memory;
    Row {
        name: "batch",
        about: "the same in batches of 100 on 8 connections, in memory. The 100 XADD of a batch are sent to Redis at once.",
        subjects: vec![
            deltaq("deltaq", memory, BATCH_OF_100),
            subject("Redis", Kind::Redis, memory, BATCH_OF_100),
            subject(
                "Redis, XACK with XREADGROUP",
                Kind::Redis,
                memory,
                Load { ack: Ack::WithNext, ..BATCH_OF_100 },
            ),
        ],
        claims: vec![rate(1, Target::AtLeast(2.0)), rate(2, Target::None)],
    }
}

fn fsync_cycle() -> Row {
    let fsync = Storage::Fsync;
    Row {
        name: "fsync-cycle",
        about: "the cycle on 64 connections with an fsync before each reply.",
        subjects: vec![
            deltaq("deltaq", fsync, LOAD),
            subject("Redis, appendfsync always", Kind::Redis, fsync, LOAD),
        ],
        claims: vec![rate(1, Target::AtLeast(1.1))],
    }
}

fn fsync_batch() -> Row {
    let fsync = Storage::Fsync;
    Row {
        name: "fsync-batch",
        about: "the same in batches of 100 on 8 connections.",
        subjects: vec![
            deltaq("deltaq", fsync, BATCH_OF_100),
            subject("Redis, appendfsync always", Kind::Redis, fsync, BATCH_OF_100),
        ],
        claims: vec![rate(1, Target::AtLeast(1.5))],
    }
}

/// deltaq on PostgreSQL beside a table of jobs on PostgreSQL.
fn postgres(name: &'static str, about: &'static str, load: Load, target: f64) -> Row {
    Row {
        name,
        about,
        subjects: vec![
            deltaq("deltaq on PostgreSQL", Storage::Postgres, load),
            subject("PostgreSQL, SKIP LOCKED", Kind::Postgres, Storage::Fsync, load),
        ],
        claims: vec![rate(1, Target::AtLeast(target))],
    }
}

fn postgres_cycle() -> Row {
    let about = "the cycle on 64 connections with the journal of deltaq in PostgreSQL; compared with a table of jobs in \
                 PostgreSQL.";
    postgres("postgres-cycle", about, LOAD, 5.0)
}

fn postgres_batch() -> Row {
    postgres("postgres-batch", "the same in batches of 100 on 8 connections.", BATCH_OF_100, 2.2)
}

fn forwarded() -> Row {
    let load = Load { connections: 1, ..LOAD };
    let claim =
        |ours, baseline| Claim { ours, baseline, quantity: Quantity::P50, target: Target::AtMost(2.0) };
    Row {
        name: "forwarded",
        about: "the cycle of one connection, and of 64, with two nodes on one PostgreSQL: calls at the node that does \
                not own the queue and forwards them, compared with calls at the owner.",
        subjects: vec![
            deltaq("forwarded", Storage::OtherNode, load),
            deltaq("direct", Storage::OwnerNode, load),
            deltaq("forwarded, 64 connections", Storage::OtherNode, LOAD),
            deltaq("direct, 64 connections", Storage::OwnerNode, LOAD),
        ],
        claims: vec![claim(0, 1), claim(2, 3)],
    }
}

fn hand_off() -> Row {
    let load = Load { scenario: Scenario::HandOff, connections: 1, ..LOAD };
    Row {
        name: "hand-off",
        about: "latency from an add to the reply of a waiting pop, one connection each, in memory; compared with a bare \
                round trip. Both rest for 2 ms before each add.",
        subjects: vec![
            deltaq("deltaq", Storage::Memory, load),
            subject(
                "HTTP alone",
                Kind::Noop,
                Storage::Memory,
                Load { scenario: Scenario::Add, rest: HAND_OFF_REST, ..load },
            ),
        ],
        claims: vec![Claim { ours: 0, baseline: 1, quantity: Quantity::P50, target: Target::AtMost(1.5) }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_are_unique_and_claims_have_subjects() {
        let rows = rows();
        for (index, row) in rows.iter().enumerate() {
            assert!(rows.iter().skip(index + 1).all(|other| other.name != row.name), "{}", row.name);
            for claim in &row.claims {
                assert!(claim.ours.max(claim.baseline) < row.subjects.len(), "{}", row.name);
            }
        }
    }

    #[test]
    fn other_servers_get_the_same_load() {
        for row in rows() {
            let ours = row.subjects[0].load;
            for other in row.subjects.iter().filter(|other| other.kind != Kind::Deltaq) {
                let theirs = other.load;
                assert_eq!(
                    (theirs.connections, theirs.batch),
                    (ours.connections, ours.batch),
                    "{}",
                    row.name
                );
                assert_eq!(theirs.object_bytes, ours.object_bytes, "{}", row.name);
            }
        }
    }

    #[test]
    fn ratios_compare_medians() {
        let figure = |median| Figure { median, least: 0.0, most: 9.0 };
        let line = Line {
            unit: "",
            ours: (String::new(), figure(6.0)),
            baseline: (String::new(), figure(4.0)),
            target: Target::None,
        };
        assert!((line.ratio() - 1.5).abs() < 1e-9);
    }
}
