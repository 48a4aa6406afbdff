//! The concurrent clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use deltaq_runtime::clock::Clock;

use super::alarm::Alarm;
use super::client::Client;
use super::history::Call;
use super::producer::Producer;
use super::reader::Reader;
use super::worker::Worker;

const PRODUCERS: u64 = 8;
const WORKERS: u64 = 8;
const READERS: u64 = 3;
/// The wait before a client goes on at another node.
const RECONNECT: Duration = Duration::from_millis(10);
/// How long a reader waits for one of several nodes. A frozen node must get reads that begin when other nodes own its queues.
const READ_MAX: Duration = Duration::from_millis(700);
/// The pause between two reads.
const READ_PAUSE: Duration = Duration::from_millis(10);

/// The clients. They keep their state over restarts of the server.
#[derive(Debug)]
pub(crate) struct Clients {
    producers: Vec<Producer>,
    workers: Vec<Worker>,
    readers: Vec<Reader>,
}

impl Clients {
    pub(crate) fn new(clock: &Clock, rng: &mut fastrand::Rng, alarm: &Arc<Alarm>) -> Self {
        let values = Arc::new(AtomicU64::new(0));
        let mut client = || Client::new(clock.clone(), rng.u64(..), alarm.clone());
        let producers = (0..PRODUCERS).map(|_| Producer::new(client(), values.clone())).collect();
        let workers = (0..WORKERS).map(|number| Worker::new(client(), format!("worker-{number}"))).collect();
        let readers = (0..READERS).map(|_| Reader::new(client())).collect();
        Self { producers, workers, readers }
    }

    /// Runs all clients until `end` has returned or the server has ended, then waits for the running calls.
    pub(crate) fn run<T>(&mut self, address: SocketAddr, end: impl FnOnce() -> T) -> T {
        self.run_on(&[address], end)
    }

    /// As [`run`](Self::run), on several nodes: a client without a reply goes on at any of them.
    pub(crate) fn run_on<T>(&mut self, nodes: &[SocketAddr], end: impl FnOnce() -> T) -> T {
        let stop = AtomicBool::new(false);
        let connect = |client: &mut Client| {
            let node = client.rng.usize(..nodes.len());
            client.connect_to(nodes[node]);
        };
        let continues = |client: &mut Client| {
            if client.is_disconnected() {
                if nodes.len() == 1 {
                    return false;
                }
                std::thread::sleep(RECONNECT);
                connect(client);
            }
            !stop.load(Ordering::Relaxed)
        };
        std::thread::scope(|scope| {
            for producer in &mut self.producers {
                scope.spawn(move || {
                    connect(&mut producer.client);
                    while continues(&mut producer.client) {
                        producer.step();
                    }
                });
            }
            for worker in &mut self.workers {
                scope.spawn(move || {
                    connect(&mut worker.client);
                    worker.resume();
                    while continues(&mut worker.client) {
                        worker.step();
                    }
                });
            }
            for reader in &mut self.readers {
                scope.spawn(move || {
                    if nodes.len() > 1 {
                        reader.client.patience = READ_MAX;
                    }
                    connect(&mut reader.client);
                    while continues(&mut reader.client) {
                        reader.step();
                        std::thread::sleep(READ_PAUSE);
                        if nodes.len() > 1 {
                            connect(&mut reader.client);
                        }
                    }
                });
            }
            // A panic in `end` must not leave the clients running for ever.
            let stop = Stop(&stop);
            let ended = end();
            drop(stop);
            ended
        })
    }

    /// The calls since the last call of this function.
    pub(crate) fn take_calls(&mut self) -> Vec<Call> {
        let producers = self.producers.iter_mut().map(|producer| &mut producer.client);
        let workers = self.workers.iter_mut().map(|worker| &mut worker.client);
        let readers = self.readers.iter_mut().map(|reader| &mut reader.client);
        producers.chain(workers).chain(readers).flat_map(|client| std::mem::take(&mut client.calls)).collect()
    }
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
