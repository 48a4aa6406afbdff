//! The subject of a measurement: a server under a load.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use deltaq::bench::{self, Keys, Measured, Plan, Scenario, Timing, Worker, drive};
use deltaq_runtime::clock::Clock;

use crate::drivers::beanstalkd::Beanstalkd;
use crate::drivers::nats::Nats;
use crate::drivers::postgres::Postgres;
use crate::drivers::redis::Redis;
use crate::drivers::{Ack, OBJECT_BYTES};
use crate::servers::{Kind, Programs, Storage};

/// The time beyond its planned length after which a measurement fails.
pub(crate) const GRACE: Duration = Duration::from_mins(1);
/// The queue of all loads.
pub(crate) const QUEUE: &str = "q";

/// The load of all connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The scenario for deltaq and for HTTP alone. Other servers always add, take and acknowledge.
    pub(crate) scenario: Scenario,
    /// When workers of other servers acknowledge.
    pub(crate) ack: Ack,
    pub(crate) connections: usize,
    pub(crate) batch: usize,
    pub(crate) object_bytes: usize,
    pub(crate) rest: Duration,
}

/// A server under a load.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) storage: Storage,
    pub(crate) load: Load,
}

/// The number and length of the measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) count: usize,
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

/// Measures all subjects in turn in each round, so that a disturbance of the machine affects all of them. Returns the results of
/// each subject, one per round.
pub(crate) async fn in_turn(
    subjects: &[Subject],
    rounds: &Rounds,
    programs: &Programs,
    clock: &Clock,
) -> io::Result<Vec<Vec<Measured>>> {
    let mut results: Vec<Vec<Measured>> = subjects.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds.count {
        for (subject, result) in subjects.iter().zip(&mut results) {
            let measuring = subject.measure(rounds, programs, clock);
            let measured = measuring
                .await
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", subject.name)))?;
            eprintln!("  {}: {:.0} objects/s", subject.name, measured.rate(measured.objects));
            result.push(measured);
        }
    }
    Ok(results)
}

impl Subject {
    async fn measure(&self, rounds: &Rounds, programs: &Programs, clock: &Clock) -> io::Result<Measured> {
        let timing = Timing { warm_up: rounds.warm_up, measured: rounds.measured, pause: self.load.rest };
        let running = programs.start(self.kind, self.storage, clock).await?;
        within(GRACE, self.prepare(&running.address, timing)).await?;
        let bound = timing.warm_up + timing.measured + GRACE;
        let measured = match self.kind {
            Kind::Deltaq | Kind::Noop => {
                let plan = self.plan(&running.address, timing);
                within(bound, bench::run(&plan, clock, |_| {})).await?
            }
            _ => within(bound, self.drive(&running.address, timing, clock)).await?,
        };
        if measured.objects == 0 {
            return Err(io::Error::other("no operation completed during the measurement"));
        }
        Ok(measured)
    }

    /// The load as a plan of `deltaq bench`.
    fn plan(&self, address: &str, timing: Timing) -> Plan {
        let load = &self.load;
        Plan {
            authority: address.to_owned(),
            scenario: load.scenario,
            queues: vec![QUEUE.to_owned()],
            connections: load.connections,
            batch: load.batch,
            object_bytes: load.object_bytes,
            keys: None,
            token: None,
            timing,
        }
    }

    /// Creates the queues, streams or tables of the load in a new server.
    async fn prepare(&self, address: &str, timing: Timing) -> io::Result<()> {
        match self.kind {
            Kind::Noop | Kind::Beanstalkd => Ok(()),
            Kind::Redis => Redis::prepare(address).await,
            Kind::Nats => Nats::prepare(address).await,
            Kind::Postgres => Postgres::prepare(address).await,
            Kind::Deltaq => bench::create(&self.plan(address, timing), QUEUE).await,
        }
    }

    /// Drives the load of the other servers.
    async fn drive(&self, address: &str, timing: Timing, clock: &Clock) -> io::Result<Measured> {
        debug_assert_eq!(self.load.object_bytes, OBJECT_BYTES, "other servers get objects of one size");
        let (next, batch, ack) = (Arc::default(), self.load.batch, self.load.ack);
        let keys = || Keys::new(Arc::clone(&next), None);
        let numbers = 0..self.load.connections;
        match self.kind {
            Kind::Deltaq | Kind::Noop => Err(io::Error::other("this server is driven by `deltaq bench`")),
            Kind::Redis => {
                let open = async |number| Redis::open(address, number, batch, ack, keys()).await;
                together(numbers, open, timing, clock).await
            }
            Kind::Beanstalkd => {
                let open = async |_| Beanstalkd::open(address, ack, keys()).await;
                together(numbers, open, timing, clock).await
            }
            Kind::Nats => {
                let open = async |number| Nats::open(address, number, batch, keys()).await;
                together(numbers, open, timing, clock).await
            }
            Kind::Postgres => {
                let open = async |_| Postgres::open(address, batch, keys()).await;
                together(numbers, open, timing, clock).await
            }
        }
    }
}

async fn together<W: Worker>(
    numbers: std::ops::Range<usize>,
    open: impl AsyncFn(usize) -> io::Result<W>,
    timing: Timing,
    clock: &Clock,
) -> io::Result<Measured> {
    let mut workers = Vec::new();
    for number in numbers {
        workers.push((0, open(number).await?));
    }
    drive(workers, Vec::new(), &timing, clock, |_| {}).await
}

/// The result of `work`, or an error after the timeout `bound`.
async fn within<T>(bound: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("timed out after {} s", bound.as_secs()));
    tokio::time::timeout(bound, work).await.unwrap_or_else(|_| Err(late()))
}
