//! Replays recorded runs of client-go.
//!
//! The recordings have the results and the state of unmodified client-go after every step, and the replay compares every
//! step. Only the differences of this list are accepted, each at the step where it occurs. The replay counts them, and the
//! counts for the project's own files are pinned, so that neither side can drift unnoticed:
//!
//! 1. after a requeue inside or before the initial list: `has_synced` and `is_in_initial_list`;
//! 2. a produce call that is refused because it has no key does not mark the queue as populated;
//! 3. `add_if_not_present` is emulated with other calls, or the trace stops there;
//! 4. a tombstone with a null object carries the newest object that the queue has;
//! 5. over HTTP (tests/it/conformance.rs of the product): a Replace that names a key twice is refused, and the trace stops there;
//! 6. rate limiters: where client-go overflows (negative waits), the wait is the maximum;
//! 7. RealFIFO: the tombstones of a Replace come before its list there, and behind its list here.
//!
//! The product replays the same traces over HTTP, and the workqueue traces with its metrics. The files are in `tests/conformance`
//! of the repository. `DELTAQ_CONFORMANCE_DIR=/some/folder` replays other files.

mod engine;
mod fifo;
mod fixtures;
mod rate_limiters;
mod real_fifo;
mod report;
mod self_test;
mod synced;

use engine::EngineFifo;
use fixtures::Fixtures;
use report::Report;

/// The report on the project's own DeltaFIFO traces, at the engine.
const FIFO_COUNTS: &str = "24195 steps compared, 0 ignored
  2255 times: 1. has_synced and is_in_initial_list after a requeue in the initial list
  2 times: 3. add_if_not_present, emulated
  4 times: 4. a tombstone without object carries the newest one";

#[test]
fn delta_fifo_at_the_engine() {
    let Fixtures { documents, own } = fixtures::load::<fifo::Trace>(fixtures::FIFO);
    let report = fifo::replay(&documents, EngineFifo::new).finish("DeltaFIFO");
    pin(own, &report, FIFO_COUNTS);
}

/// The report on the project's own RealFIFO traces, at the engine.
const REAL_FIFO_COUNTS: &str = "18000 steps compared, 0 ignored
  987 times: 7. a tombstone of a Replace is delivered behind the list";

#[test]
fn real_fifo_at_the_engine() {
    let Fixtures { documents, own } = fixtures::load::<real_fifo::Trace>(fixtures::REAL_FIFO);
    let report = real_fifo::replay(&documents, EngineFifo::events).finish("RealFIFO");
    pin(own, &report, REAL_FIFO_COUNTS);
}

#[test]
fn rate_limiters_of_the_engine() {
    let Fixtures { documents, own } = fixtures::load::<rate_limiters::Table>(fixtures::RATE_LIMITERS);
    let report = rate_limiters::replay(&documents).finish("rate limiters");
    pin(
        own,
        &report,
        "2280 steps compared, 0 ignored
  77 times: 6. a negative wait becomes the maximum
  11 times: no difference, but the recording omits calls",
    );
}

/// Compares the counts of the project's own files with the expected ones. Other files have unknown counts.
fn pin(own: bool, report: &Report, counts: &str) {
    if own {
        assert_eq!(report.to_string(), counts);
    }
}
