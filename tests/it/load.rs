//! `deltaq bench` against a real server: its report agrees with the state of the server.

use std::time::Duration;

use deltaq::bench::{self, Measured, Plan, Scenario, Timing};
use deltaq_runtime::clock::Clock;
use serde_json::{Value, json};

use crate::harness::Service;

const QUEUE: &str = "loaded";

fn plan(service: &Service, scenario: Scenario, batch: usize) -> Plan {
    let timing = Timing {
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(200),
        pause: Duration::from_millis(1),
    };
    Plan {
        authority: service.api.to_string(),
        scenario,
        queues: vec![QUEUE.to_owned()],
        // Each hand-off needs a queue of its own.
        connections: if scenario == Scenario::HandOff { 1 } else { 3 },
        batch,
        object_bytes: 100,
        keys: None,
        token: None,
        timing,
    }
}

/// Runs a plan on a new server. Returns the report and the status of the queue afterwards.
async fn run(scenario: Scenario, batch: usize) -> (Measured, Value) {
    let service = Service::start().await;
    let plan = plan(&service, scenario, batch);
    bench::create(&plan, QUEUE).await.expect("a queue");
    let measured = bench::run(&plan, &Clock::system(), |_| {}).await.expect("every request succeeds");
    let document = service.get(&format!("/v1/queues/{QUEUE}")).await.body;
    (measured, document["status"].clone())
}

fn count(status: &Value, field: &str) -> u64 {
    status[field].as_u64().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn added_objects_are_in_the_queue() {
    let (measured, status) = run(Scenario::Add, 7).await;
    // Each connection may end one more request after the time is up.
    let ready = count(&status, "ready");
    assert!(measured.objects > 0 && measured.objects == 7 * measured.requests);
    assert!((measured.objects..=measured.objects + 3 * 7).contains(&ready), "{measured:?} {status}");
    assert!(measured.latencies().p50 > 0 && measured.latencies().p50 <= measured.latencies().max);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_objects_are_known_and_no_longer_wait() {
    let (measured, status) = run(Scenario::AddPopAck, 5).await;
    let known = count(&status, "known");
    assert!(measured.objects > 0 && (measured.objects..=measured.objects + 15).contains(&known), "{status}");
    assert_eq!((count(&status, "ready"), count(&status, "leased")), (0, 0));
    let (measured, status) = run(Scenario::AddPop, 5).await;
    // The leases of the last pop are not acknowledged.
    let taken = count(&status, "known") + count(&status, "leased");
    assert!(measured.objects > 0 && (measured.objects..=measured.objects + 15).contains(&taken), "{status}");
    assert!(count(&status, "leased") <= 15);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_scenarios_leave_the_expected_state() {
    let (measured, status) = run(Scenario::HandOff, 1).await;
    assert!(measured.objects > 0 && 2 * measured.objects == measured.requests);
    assert_eq!(count(&status, "ready"), 0);
    let (measured, status) = run(Scenario::Replace, 20).await;
    assert!(measured.objects > 0 && measured.objects == 20 * measured.requests);
    assert_eq!(status["last_replace"]["counts"]["replaced"], 20);
    let (measured, status) = run(Scenario::HotKey, 1).await;
    // The one key is in one state, and known from earlier pops.
    let occupied = count(&status, "ready") + count(&status, "leased");
    assert!(measured.objects > 1 && occupied <= 1 && count(&status, "known") == 1, "{status}");
    let (measured, _) = run(Scenario::Mixed, 1).await;
    assert!(measured.objects > 0 && measured.requests >= measured.objects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_ends_the_run_with_its_problem() {
    let service = Service::start().await;
    let plan = plan(&service, Scenario::Add, 1);
    let config = json!({ "max_object_bytes": 99 });
    service.call("PUT", &format!("/v1/queues/{QUEUE}"), &config).await;
    let refused = bench::run(&plan, &Clock::system(), |_| {}).await.expect_err("the objects are too large");
    assert!(refused.to_string().contains("object-too-large"), "{refused}");
    bench::delete(&plan, QUEUE).await.expect("the queue exists");
    assert_eq!(service.get(&format!("/v1/queues/{QUEUE}")).await.status, 404);
}
