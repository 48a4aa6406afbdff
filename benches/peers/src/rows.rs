//! The rows of the table: their servers, loads, comparisons and targets.

use std::time::Duration;

use deltaq::bench::{Measured, Scenario};

use crate::cargo_bench::Program;
use crate::drivers::{Ack, OBJECT_BYTES};
use crate::figures::{Figure, Target};
use crate::servers::{Kind, Storage};
use crate::subject::{KNOWN_BYTES, Load, Subject};

/// The base of all loads: one new object per request on 64 connections.
pub(crate) const LOAD: Load = Load {
    scenario: Scenario::AddPop,
    ack: Ack::AtOnce,
    connections: 64,
    batch: 1,
    object_bytes: OBJECT_BYTES,
    queues: 1,
    keys: None,
    known: 0,
    rest: Duration::ZERO,
};
const BATCH_OF_100: Load = Load { connections: 8, batch: 100, ..LOAD };
/// The rest before each add of the scenario `hand-off` of `deltaq bench`.
const HAND_OFF_REST: Duration = Duration::from_millis(2);

/// A row: measurements and one or several claims about them.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) work: Work,
}

/// How a row is measured.
pub(crate) enum Work {
    Loads {
        subjects: Vec<Subject>,
        claims: Vec<Claim>,
    },
    /// Loads, then a check that all deltas of a hot key are delivered, in order.
    HotKey {
        subjects: Vec<Subject>,
        claims: Vec<Claim>,
    },
    /// A benchmark of deltaq's own.
    Program(Program),
    /// Two nodes, each with a queue of its own, compared with one node that has both queues.
    TwoNodes,
    /// The loss and the stop of a node.
    Takeover,
}

/// One line of the table.
pub(crate) struct Claim {
    /// The index of the measured subject.
    ours: usize,
    /// The index of the subject to compare with, if any.
    baseline: Option<usize>,
    quantity: Quantity,
    target: Target,
}

/// A quantity of a measurement.
#[derive(Clone, Copy, Debug)]
enum Quantity {
    ObjectsPerSecond,
    P50,
    P99,
    /// The throughput of the slowest queue, relative to its fair share.
    SlowestShare,
}

/// A claim with its figures.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) unit: String,
    pub(crate) ours: (String, Figure),
    pub(crate) baseline: Option<(String, Figure)>,
    pub(crate) target: Target,
}

impl Line {
    /// The ratio of the medians, or the median if there is no comparison.
    pub(crate) fn ratio(&self) -> f64 {
        match &self.baseline {
            Some((_, baseline)) => self.ours.1.median / baseline.median,
            None => self.ours.1.median,
        }
    }
}

impl Quantity {
    fn unit(self) -> &'static str {
        match self {
            Self::ObjectsPerSecond => "objects/s",
            Self::P50 => "p50 µs",
            Self::P99 => "p99 µs",
            Self::SlowestShare => "of a fair share",
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn of(self, measured: &Measured) -> f64 {
        match self {
            Self::ObjectsPerSecond => measured.rate(measured.objects),
            Self::P50 => measured.latencies().p50 as f64,
            Self::P99 => measured.latencies().p99 as f64,
            Self::SlowestShare => {
                let slowest = measured.groups.iter().min().copied().unwrap_or_default();
                slowest as f64 * measured.groups.len() as f64 / measured.objects.max(1) as f64
            }
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
        let baseline = match self.baseline {
            Some(index) => Some(figure(index)?),
            None => None,
        };
        Some(Line {
            unit: self.quantity.unit().to_owned(),
            ours: figure(self.ours)?,
            baseline,
            target: self.target,
        })
    }
}

/// A claim about the throughput of the first subject compared with that of the subject `baseline`.
fn rate(baseline: usize, target: Target) -> Claim {
    Claim { ours: 0, baseline: Some(baseline), quantity: Quantity::ObjectsPerSecond, target }
}

fn subject(name: &str, kind: Kind, storage: Storage, load: Load) -> Subject {
    Subject { name: name.to_owned(), kind, storage, load }
}

fn deltaq(name: &str, storage: Storage, load: Load) -> Subject {
    subject(name, Kind::Deltaq, storage, load)
}

/// The rows that have a chart of their own, `docs/plots/ROW.svg`.
pub(crate) const CHARTED: [&str; 5] =
    ["postgres-cycle", "postgres-batch", "forwarded", "two-nodes", "takeover"];

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
        Row {
            name: "two-nodes",
            about: "the cycle in batches of 10 on 32 connections, half of them for each of two queues: two nodes that own one \
                    queue each, compared with one node that owns both. All on one PostgreSQL.",
            work: Work::TwoNodes,
        },
        Row {
            name: "takeover",
            about: "the longest time until a call at the other of two nodes succeeds, with 100,000 known keys in the queue, when \
                    the owner is killed, and when the owner stops. A refused call is repeated.",
            work: Work::Takeover,
        },
        Row {
            name: "checkpoint",
            about: "64 connections update, pop and acknowledge 1,000,000 known keys in batches of 10, with an fsync \
                    before each reply. Throughput during the first checkpoint, compared with that before it. Measured \
                    by `cargo bench --locked --bench journal -- checkpoint`.",
            work: Work::Program(Program::Checkpoint),
        },
        Row {
            name: "engine",
            about: "the engine alone, without HTTP. Measured by `cargo bench --locked --bench engine`.",
            work: Work::Program(Program::Engine),
        },
        hand_off(),
        known(),
        hot_key(),
        queues(),
    ]
}

fn add() -> Row {
    let load = Load { scenario: Scenario::Add, ..LOAD };
    Row {
        name: "add",
        about: "one object per request, 64 connections, in memory; compared with an HTTP server that does nothing.",
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq", Storage::Memory, load),
                subject("HTTP alone", Kind::Noop, Storage::Memory, load),
            ],
            claims: vec![rate(1, Target::AtLeast(0.85))],
        },
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
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq", memory, LOAD),
                subject("beanstalkd: put, reserve, delete", Kind::Beanstalkd, memory, LOAD),
                subject("Redis: XADD, XREADGROUP, XACK", Kind::Redis, memory, LOAD),
                subject("beanstalkd, delete with reserve", Kind::Beanstalkd, memory, with_next),
                subject("Redis, XACK with XREADGROUP", Kind::Redis, memory, with_next),
                subject("NATS JetStream", Kind::Nats, memory, LOAD),
                deltaq("deltaq: add, pop, ack", memory, Load { scenario: Scenario::AddPopAck, ..LOAD }),
            ],
            claims: vec![
                rate(1, Target::AtLeast(1.1)),
                rate(2, Target::AtLeast(1.1)),
                rate(3, Target::None),
                rate(4, Target::None),
                rate(5, Target::None),
                rate(6, Target::None),
            ],
        },
    }
}

fn batch() -> Row {
    let memory = Storage::Memory;
    Row {
        name: "batch",
        about: "the same in batches of 100 on 8 connections, in memory. The 100 XADD of a batch are sent to Redis at once.",
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq", memory, BATCH_OF_100),
                subject("Redis", Kind::Redis, memory, BATCH_OF_100),
                subject(
                    "Redis, XACK with XREADGROUP",
                    Kind::Redis,
                    memory,
                    Load { ack: Ack::WithNext, ..BATCH_OF_100 },
                ),
                subject("NATS JetStream", Kind::Nats, memory, BATCH_OF_100),
            ],
            claims: vec![rate(1, Target::AtLeast(1.0)), rate(2, Target::None), rate(3, Target::None)],
        },
    }
}

fn fsync_cycle() -> Row {
    let fsync = Storage::Fsync;
    Row {
        name: "fsync-cycle",
        about: "the cycle on 64 connections with an fsync before each reply (for NATS see the settings above).",
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq", fsync, LOAD),
                subject("Redis, appendfsync always", Kind::Redis, fsync, LOAD),
                subject("beanstalkd -b -f0", Kind::Beanstalkd, fsync, LOAD),
                subject("PostgreSQL, SKIP LOCKED", Kind::Postgres, fsync, LOAD),
                deltaq("deltaq in memory", Storage::Memory, LOAD),
                subject("NATS JetStream, file", Kind::Nats, fsync, LOAD),
            ],
            claims: vec![
                rate(1, Target::AtLeast(1.5)),
                rate(2, Target::AtLeast(8.0)),
                rate(3, Target::AtLeast(6.0)),
                rate(4, Target::AtLeast(0.6)),
                rate(5, Target::None),
            ],
        },
    }
}

fn fsync_batch() -> Row {
    let fsync = Storage::Fsync;
    Row {
        name: "fsync-batch",
        about: "the same in batches of 100 on 8 connections.",
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq", fsync, BATCH_OF_100),
                subject("Redis, appendfsync always", Kind::Redis, fsync, BATCH_OF_100),
                subject("PostgreSQL, SKIP LOCKED", Kind::Postgres, fsync, BATCH_OF_100),
                subject("NATS JetStream, file", Kind::Nats, fsync, BATCH_OF_100),
            ],
            claims: vec![rate(1, Target::AtLeast(1.0)), rate(2, Target::None), rate(3, Target::None)],
        },
    }
}

/// deltaq on PostgreSQL beside a table of jobs on PostgreSQL, and beside deltaq on SQLite.
fn postgres(name: &'static str, about: &'static str, load: Load) -> Row {
    Row {
        name,
        about,
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq on PostgreSQL", Storage::Postgres, load),
                subject("PostgreSQL, SKIP LOCKED", Kind::Postgres, Storage::Fsync, load),
                deltaq("deltaq on SQLite", Storage::Fsync, load),
            ],
            claims: vec![rate(1, Target::AtLeast(3.0)), rate(2, Target::None)],
        },
    }
}

fn postgres_cycle() -> Row {
    let about = "the cycle on 64 connections with the journal of deltaq in PostgreSQL; compared with a table of jobs in \
                 PostgreSQL.";
    postgres("postgres-cycle", about, LOAD)
}

fn postgres_batch() -> Row {
    postgres("postgres-batch", "the same in batches of 100 on 8 connections.", BATCH_OF_100)
}

fn forwarded() -> Row {
    let load = Load { connections: 1, ..LOAD };
    let claim = |ours, baseline, quantity, target| Claim { ours, baseline: Some(baseline), quantity, target };
    Row {
        name: "forwarded",
        about: "the cycle of one connection, and of 64, with two nodes on one PostgreSQL: calls at the node that does \
                not own the queue and forwards them, compared with calls at the owner.",
        work: Work::Loads {
            subjects: vec![
                deltaq("forwarded", Storage::OtherNode, load),
                deltaq("direct", Storage::OwnerNode, load),
                deltaq("forwarded, 64 connections", Storage::OtherNode, LOAD),
                deltaq("direct, 64 connections", Storage::OwnerNode, LOAD),
            ],
            claims: vec![
                claim(0, 1, Quantity::P50, Target::AtMost(2.0)),
                claim(0, 1, Quantity::P99, Target::None),
                claim(2, 3, Quantity::P50, Target::AtMost(2.0)),
                claim(2, 3, Quantity::ObjectsPerSecond, Target::None),
            ],
        },
    }
}

fn hand_off() -> Row {
    let load = Load { scenario: Scenario::HandOff, connections: 1, ..LOAD };
    let claim = |quantity, target| Claim { ours: 0, baseline: Some(1), quantity, target };
    Row {
        name: "hand-off",
        about: "latency from an add to the reply of a waiting pop, one connection each, in memory; compared with a bare \
                round trip. Both rest for 2 ms before each add.",
        work: Work::Loads {
            subjects: vec![
                deltaq("deltaq", Storage::Memory, load),
                subject(
                    "HTTP alone",
                    Kind::Noop,
                    Storage::Memory,
                    Load { scenario: Scenario::Add, rest: HAND_OFF_REST, ..load },
                ),
            ],
            claims: vec![
                claim(Quantity::P50, Target::AtMost(1.5)),
                claim(Quantity::P99, Target::AtMost(3.0)),
            ],
        },
    }
}

/// Cycles on 1,000 keys while `known` keys are known.
pub(crate) fn known_load(known: u64) -> Load {
    Load { connections: 8, batch: 10, object_bytes: KNOWN_BYTES, keys: Some(1_000), known, ..LOAD }
}

fn known() -> Row {
    Row {
        name: "known",
        about: "cycles in batches of 10 on 8 connections, with 1,000 keys and objects of 40 bytes, in memory, with \
                10,000,000 known keys compared with 1,000.",
        work: Work::Loads {
            subjects: vec![
                deltaq("10,000,000 known", Storage::Memory, known_load(10_000_000)),
                deltaq("1,000 known", Storage::Memory, known_load(1_000)),
            ],
            claims: vec![rate(1, Target::AtLeast(0.8))],
        },
    }
}

fn hot_key() -> Row {
    let load = |scenario| Load { scenario, ..LOAD };
    Row {
        name: "hot-key",
        about: "64 connections update one key while another one pops and acknowledges it, in memory; compared with \
                adds of new keys. A separate check with 4 connections: all updates are delivered, each once and in order.",
        work: Work::HotKey {
            subjects: vec![
                deltaq("one key", Storage::Memory, load(Scenario::HotKey)),
                deltaq("new keys", Storage::Memory, load(Scenario::Add)),
            ],
            claims: vec![rate(1, Target::AtLeast(0.9))],
        },
    }
}

fn queues() -> Row {
    let several = |queues| Load { queues, ..LOAD };
    let claim = |ours, baseline, quantity, target| Claim { ours, baseline, quantity, target };
    Row {
        name: "queues",
        about: "the cycle on 64 connections, spread over several queues, in memory.",
        work: Work::Loads {
            subjects: vec![
                deltaq("1 queue", Storage::Memory, several(1)),
                deltaq("4 queues", Storage::Memory, several(4)),
                deltaq("16 queues", Storage::Memory, several(16)),
            ],
            claims: vec![
                claim(1, Some(0), Quantity::ObjectsPerSecond, Target::AtLeast(0.95)),
                claim(2, Some(0), Quantity::ObjectsPerSecond, Target::AtLeast(0.95)),
                claim(2, None, Quantity::SlowestShare, Target::AtLeast(0.5)),
            ],
        },
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
            let (Work::Loads { subjects, claims } | Work::HotKey { subjects, claims }) = &row.work else {
                continue;
            };
            for claim in claims {
                assert!(claim.ours < subjects.len(), "{}", row.name);
                assert!(claim.baseline.is_none_or(|baseline| baseline < subjects.len()), "{}", row.name);
            }
        }
    }

    #[test]
    fn charts_belong_to_rows() {
        let rows = rows();
        for name in CHARTED {
            assert!(rows.iter().any(|row| row.name == name), "{name}");
        }
    }

    #[test]
    fn other_servers_get_the_same_load() {
        for row in rows() {
            let (Work::Loads { subjects, .. } | Work::HotKey { subjects, .. }) = &row.work else { continue };
            let ours = subjects[0].load;
            for other in subjects.iter().filter(|other| other.kind != Kind::Deltaq) {
                let theirs = other.load;
                assert_eq!(
                    (theirs.connections, theirs.batch),
                    (ours.connections, ours.batch),
                    "{}",
                    row.name
                );
                assert_eq!(theirs.object_bytes, ours.object_bytes, "{}", row.name);
                assert_eq!((theirs.keys, theirs.queues), (ours.keys, ours.queues), "{}", row.name);
            }
        }
    }

    #[test]
    fn the_slowest_queue_is_measured_by_its_share() {
        let mut measured = Measured::default();
        (measured.objects, measured.groups) = (100, vec![40, 10, 25, 25]);
        assert!((Quantity::SlowestShare.of(&measured) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn ratios_compare_medians() {
        let figure = |median| Figure { median, least: 0.0, most: 9.0 };
        let mut line = Line {
            unit: String::new(),
            ours: (String::new(), figure(6.0)),
            baseline: Some((String::new(), figure(4.0))),
            target: Target::None,
        };
        assert!((line.ratio() - 1.5).abs() < 1e-9);
        line.baseline = None;
        assert!((line.ratio() - 6.0).abs() < 1e-9);
    }
}
