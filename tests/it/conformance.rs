//! Replays the recorded runs of client-go over HTTP, and those of its workqueue with the metrics of the service.
//!
//! `crates/deltaq-engine/tests/it/conformance.rs` replays them at the engine, and lists the accepted differences.

#[path = "../../crates/deltaq-engine/tests/it/conformance/fifo.rs"]
mod fifo;
#[path = "../../crates/deltaq-engine/tests/it/conformance/fixtures.rs"]
mod fixtures;
mod http;
#[path = "../../crates/deltaq-engine/tests/it/conformance/real_fifo.rs"]
mod real_fifo;
#[path = "../../crates/deltaq-engine/tests/it/conformance/report.rs"]
mod report;
#[path = "../../crates/deltaq-engine/tests/it/conformance/synced.rs"]
mod synced;
mod workqueue;

use fixtures::Fixtures;
use http::HttpFifos;
use report::Report;

/// The report on the project's own DeltaFIFO traces, for the engine and for HTTP.
const FIFO_COUNTS: &str = "24195 steps compared, 0 ignored
  2255 times: 1. has_synced and is_in_initial_list after a requeue in the initial list
  2 times: 3. add_if_not_present, emulated
  4 times: 4. a tombstone without object carries the newest one";

#[test]
fn delta_fifo_over_http() {
    let Fixtures { documents, own } = fixtures::load::<fifo::Trace>(fixtures::FIFO);
    let queues = HttpFifos::start();
    let report = fifo::replay(&documents, |options| queues.queue(options)).finish("DeltaFIFO over HTTP");
    let counts = FIFO_COUNTS.replace("24195 steps compared, 0 ignored", "24192 steps compared, 3 ignored");
    let refused = "5. a Replace that names a key twice is refused, trace stopped";
    pin(own, &report, &format!("{counts}\n  1 times: {refused}"));
}

/// The report on the project's own RealFIFO traces, for the engine and for HTTP.
const REAL_FIFO_COUNTS: &str = "18000 steps compared, 0 ignored
  987 times: 7. a tombstone of a Replace is delivered behind the list";

#[test]
fn real_fifo_over_http() {
    let Fixtures { documents, own } = fixtures::load::<real_fifo::Trace>(fixtures::REAL_FIFO);
    let queues = HttpFifos::start();
    let report = real_fifo::replay(&documents, || queues.events()).finish("RealFIFO over HTTP");
    pin(own, &report, REAL_FIFO_COUNTS);
}

#[test]
fn workqueue_at_the_engine() {
    let Fixtures { documents, own } = fixtures::load::<workqueue::Trace>(fixtures::WORKQUEUE);
    let report = workqueue::replay(&documents).finish("workqueue");
    pin(own, &report, "12000 steps compared, 0 ignored");
}

/// Compares the counts of the project's own files with the expected ones. Other files have unknown counts.
fn pin(own: bool, report: &Report, counts: &str) {
    if own {
        assert_eq!(report.to_string(), counts);
    }
}
