//! `deltaq reflect`: keeps queues in step with source systems, as client-go's Reflector does for Kubernetes.
//!
//! The modules in `source/` read a source and convert it to events: a list, and changes if the source can report
//! them. The client's `Reflector` sends them to the queue: a list as one Replace, which changes nothing unless the
//! whole list has arrived. `task.rs` repeats this for one source, with pauses after failures. Sources share nothing
//! but the process: `run` starts a separate task for each.
//!
//! Invariant: a failure of a source deletes nothing. The previous list stays in force.

mod contact;
mod health;
mod heartbeat;
mod json;
mod left_out;
mod metrics;
mod page;
mod report;
pub mod settings;
mod slot;
mod source;
mod task;

use deltaq_client::Client;
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;
use futures_util::future::join_all;

pub use self::metrics::Summary;
pub use self::page::Page;

use self::metrics::Metrics;
use self::task::Plan;
use crate::settings::Reflect;

/// Why a source can't be reflected.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The source failed.
    #[error(transparent)]
    Source(#[from] source::Error),
    /// The queue refused what was sent, or could not be reached.
    #[error("the queue {queue}")]
    Queue {
        /// The name of the queue.
        queue: String,
        /// The error of the call.
        source: deltaq_client::Error,
    },
}

/// All sources of a process.
#[derive(Debug)]
pub struct Reflectors {
    plans: Vec<Plan>,
    metrics: Metrics,
}

impl Reflectors {
    /// Prepares the sources. Nothing is read yet.
    #[must_use]
    pub fn new(settings: &Reflect, client: &Client, clock: &Clock) -> Self {
        let mut metrics = Metrics::new();
        let plans = settings.sources.iter().map(|(name, settings)| {
            let of_source = metrics.add(name, settings.queue.as_str());
            if settings.replication.is_some() {
                metrics.watch_slot(&of_source, settings.queue.as_str());
            }
            Plan::new(name, settings, client.clone(), of_source, clock.clone())
        });
        let plans = plans.collect();
        Self { plans, metrics }
    }

    /// The page of the metrics.
    #[must_use]
    pub fn metrics(&self) -> Page {
        Page::new(self.metrics.clone())
    }

    /// Sends one list of each source, all concurrently.
    pub async fn once(self) -> Vec<(String, Result<Summary, Error>)> {
        join_all(self.plans.into_iter().map(Plan::once)).await
    }

    /// Ends the replication of the sources that have a slot: drops the slots, and the publications that were made with them.
    /// Returns the name of each slot, and whether there was one; `None` for a source without a slot.
    pub async fn drop_slots(self) -> Vec<(String, Result<Option<(String, bool)>, Error>)> {
        join_all(self.plans.into_iter().map(Plan::drop_slot)).await
    }

    /// Reflects all sources until the shutdown begins.
    pub async fn run(self, shutdown: &Shutdown) {
        join_all(self.plans.into_iter().map(|plan| plan.run(shutdown))).await;
    }
}
