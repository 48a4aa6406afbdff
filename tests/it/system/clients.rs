//! The Rust client against a server in this process. `tests/clients/` has the faults of servers, networks and handlers.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use deltaq::config::access::Verb;
use deltaq_client::types::{
    DeltaCall, DeltaCallType, DiffOp, DiffOperation, Difference, RawJson, ReflectorReport, SettleAs,
    SettleCall,
};
use deltaq_client::{
    Body, CancellationToken, Client, ClientOptions, Deleted, Error, Event, Handler, Informer, Object,
    Outcome, Queue, RawValue, Reflector, ReflectorError, ReflectorOptions, ReplaceOptions, Selection, View,
};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::access::token;
use crate::harness::{Service, spawn};

fn client(service: &Service) -> Client {
    Client::at(service.api.to_string()).expect("an address")
}

fn raw(object: &Value) -> Box<RawValue> {
    RawValue::from_string(object.to_string()).expect("JSON")
}

/// A list of objects with this many bytes each.
fn list(objects: usize, bytes: usize) -> Vec<io::Result<Event>> {
    let text = "x".repeat(bytes);
    let object = |number| raw(&json!({ "key": format!("k{number}"), "text": text }));
    let objects = (0..objects).map(|number| Ok(Event::InitApply(object(number))));
    std::iter::once(Ok(Event::Init)).chain(objects).collect()
}

/// Makes the calls of a queue that apply only under a condition.
async fn call_with_conditions(queue: &Queue) -> Result<(), Error> {
    let single = json!({"key": "e"});
    queue.add(&single).if_absent().must_exist().await?;
    let there = queue.update(&single).if_absent().await.expect_err("the key has an object");
    assert_eq!(there.code(), Some("precondition-failed"));
    queue.update(&single).if_match("*").await?;
    queue.delete(&single).if_match("*").await?;
    let gone = queue.delete(&single).if_match("*").await.expect_err("the key has no object");
    assert_eq!(gone.code(), Some("precondition-failed"));
    let absent = queue.client().queue("absent").add(&single).must_exist().await.expect_err("no such queue");
    assert_eq!(absent.code(), Some("queue-not-found"));
    assert_eq!(queue.items().error("no such error").await?.items.len(), 0);
    queue.items().error("").with_diff().limit(1).await?;
    Ok(())
}

/// Makes every call of a queue.
async fn call_everything(queue: &Queue) -> Result<(), Error> {
    queue.put_settings(&json!({"indexes": {"by_city": "/city"}})).if_absent().await?;
    let (settings, etag) = queue.settings().await?;
    assert_eq!(queue.plan_settings(&settings).await?.etag.as_ref(), Some(&etag));
    queue.patch_settings(&json!({"max_failures": 5})).if_match(&etag).await?;
    let lost = queue.put_settings(&settings).if_match(&etag).await.expect_err("the settings have changed");
    assert_eq!(lost.code(), Some("precondition-failed"));
    queue.get().await?;
    queue.status().await?;
    let refused = queue.test_push().await.expect_err("the queue does not push");
    assert_eq!(refused.code(), Some("invalid-config"));
    queue.pause().await?;
    queue.resume().await?;
    queue.add(&json!({"key": "a", "city": "Rome"})).source("erp").sequence(1).await?;
    queue.update(&[json!({"key": "b"}), json!({"key": "c"})]).delay(Duration::from_secs(1)).await?;
    queue.delete(&json!({"key": "c"})).await?;
    queue.delete_key("c").await?;
    call_with_conditions(queue).await?;
    let deltas = [DeltaCall {
        kind: DeltaCallType::Deleted,
        key: Some("c".to_owned()),
        object: None,
        source: None,
        delay: None,
        debounce: None,
        head_start: None,
        max_wait: None,
        final_state_unknown: true,
        expected_version: Some(0),
    }];
    queue.deltas(&deltas).source("erp").sequence(2).await?;
    queue.replace(Some("wms"), &ReplaceOptions::default(), Body::Json("[{\"key\":\"d\"}]".into())).await?;
    queue.resync().await?;
    queue.forget(&["a"]).await?;
    let mut lease_ids = Vec::new();
    for _ in 0..6 {
        queue.add(&json!({"key": format!("job-{}", lease_ids.len()), "city": "Oslo"})).await?;
        let popped = queue.pop().max(1).worker("w").with_known().wait(Duration::from_secs(5)).await?;
        lease_ids.extend(popped.items.into_iter().map(|item| item.lease.id));
    }
    let [ack, nack, reject, release, settle, extend] = lease_ids.as_slice() else { panic!("{lease_ids:?}") };
    queue.extend(&[extend], Some(Duration::from_mins(1))).await?;
    queue.ack(&[ack]).await?;
    queue.nack(&[nack], Some(Duration::from_mins(1)), true, Some("no route")).await?;
    queue.reject(&[reject], None).await?;
    queue.release(&[release]).await?;
    let call = SettleCall::new(settle, SettleAs::Ack);
    let settled = queue.settle(vec![call.clone()]).await?;
    assert_eq!(settled.stale, 0);
    assert_eq!(queue.release(&[ack]).await?.stale, 1, "a call whose leases have all ended has results, too");
    assert_eq!(queue.parked_errors().await?.items.len(), 1);
    assert_eq!(queue.promote(Selection::Keys(&[]), None).await?.keys, 0);
    assert_eq!(queue.promote(Selection::Error("no route"), Some(1)).await?.keys, 1);
    queue.redrive(Selection::Error("no route"), None).await?;
    let changed = queue.redrive(Selection::All, Some(2)).await.expect_err("one key is parked");
    assert_eq!(changed.problem().and_then(|problem| problem.count), Some(1), "{changed}");
    assert_eq!(queue.redrive(Selection::All, None).await?.keys, 1);
    queue.discard(Selection::Keys(&["a"]), None).await?;
    read_everything(queue).await?;
    queue.close().at_once().await?;
    queue.reopen().await?;
    queue.purge().await?;
    Ok(())
}

async fn read_everything(queue: &Queue) -> Result<(), Error> {
    queue.add(&json!({"key": "ready", "city": "Rome"})).await?;
    assert!(queue.items().state("ready,delayed,leased,parked").limit(1).stream().count().await > 1);
    queue.item("ready").await?;
    queue.explain("ready").await?;
    queue.latest().prefix("r").await?;
    queue.latest_object("ready").min_resource_version(queue.get().await?.status.resource_version).await?;
    let known = queue.known().index("by_city", "Rome").wait(Duration::from_secs(10)).await?;
    let known = known.items.first().map(|object| object.key.clone());
    queue.known_object(known.as_deref().unwrap_or("a")).await?;
    queue.indexes().await?;
    queue.index_values("by_city").await?;
    queue.history("a").await?;
    queue.sources().await?;
    assert_eq!(queue.source("erp").await?.and_then(|source| source.sequence), Some(2));
    assert_eq!(queue.source("nobody").await?, None);
    assert_eq!(queue.renumber_source("erp", None).await?.sequence, None);
    let unknown = queue.renumber_source("nobody", None).await.expect_err("no such source");
    assert_eq!(unknown.code(), Some("source-not-found"));
    queue.report_source("erp", Some("the export is late")).await?;
    queue.seen_source("erp").await?;
    let hour = Duration::from_hours(1);
    assert!(queue.set_stale_after("erp", Some(hour)).await?.stale_after.is_some());
    queue.set_thresholds([("erp", Some(hour)), ("crm", None)], None).await?;
    queue.report_reflector(&reflector()).await?;
    let problem = queue.source("erp").await?.and_then(|source| source.problem);
    assert_eq!(problem.map(|problem| problem.detail).as_deref(), Some("the export is late"));
    queue.workers().await?;
    assert_eq!(queue.groups().sort("ready").await?.count, 0);
    queue.synced().resource_version("now").await?;
    assert!(Box::pin(queue.watch().view(View::Known).stream()).next().await.is_some());
    Ok(())
}

#[tokio::test]
async fn every_operation_has_a_typed_method() {
    let service = Service::start().await;
    let client = client(&service);
    call_everything(&client.queue("q")).await.expect("each call succeeds");
    let keys = client.queue("keys");
    keys.put_settings(&json!({"mode": "keys"})).await.expect("a queue");
    keys.add_key("a").rate_limited().await.expect("a key");
    let popped = keys.pop().wait(Duration::from_secs(5)).await.expect("a pop");
    let lease_ids: Vec<_> = popped.items.iter().map(|item| item.lease.id.as_str()).collect();
    keys.done(&lease_ids, Some(Duration::from_mins(1))).await.expect("a done");
    client.queue("seeded").seed(Body::Json(r#"[{"object":{"key":"a"}}]"#.into())).await.expect("a seed");
    client.queues().prefix("q").await.expect("a list");
    client.sources().queue("q").await.expect("a list");
    client.reflectors().await.expect("a list");
    client.workers().await.expect("a list");
    client.find("a").await.expect("matches");
    client.activity(None).await.expect("a page");
    let (hour, minute) = (Duration::from_hours(1), Duration::from_mins(1));
    client.series(hour, minute).await.expect("the sums");
    client.queue("q").series(hour, minute).await.expect("the series");
    client.queue("q").delete_queue().await.expect("the queue is deleted");
    client.info().await.expect("the server");
    assert!(client.nodes().await.expect("the nodes").nodes.is_empty());
    client.livez().await.expect("it lives");
    client.readyz().await.expect("it is ready");
    client.problem_page("mass-delete").await.expect("a page");
    let openapi = client.openapi().await.expect("the API");

    let metrics = service.get("/metrics").await;
    let metrics = if metrics.status == 200 {
        metrics.text
    } else {
        let page = Client::at(service.metrics.to_string()).expect("an address");
        let call = deltaq_client::Call::new(deltaq_client::Method::GET, ["metrics"]);
        page.send(call).await.expect("metrics").text().await.expect("text")
    };
    let requests = metrics.lines().filter(|line| line.starts_with("deltaq_http_requests_total"));
    let requests: String = requests.filter(|line| line.contains("status=\"2")).collect();
    let requests = requests.replace("{*", "{");
    let mut missing = BTreeSet::new();
    for (path, methods) in openapi["paths"].as_object().expect("paths") {
        for method in methods.as_object().expect("methods").keys().map(|method| method.to_uppercase()) {
            let is_called = requests.split("deltaq_http_requests_total").any(|line| {
                line.contains(&format!("route=\"{path}\"")) && line.contains(&format!("method=\"{method}\""))
            });
            if !is_called {
                missing.insert(format!("{method} {path}"));
            }
        }
    }
    // The queue does not push, so the call is refused.
    missing.remove("POST /v1/queues/{queue}/push/test");
    // Vendors send deliveries, and operators look at those that could not be applied.
    missing.retain(|call| !call.contains("/hook"));
    // These have a second path, which takes every key, and one method for both.
    for path in ["items", "latest", "known", "explain", "history"] {
        missing.remove(&format!("GET /v1/queues/{{queue}}/{path}/{{key}}"));
    }
    assert!(missing.is_empty(), "no typed method has called {missing:#?}");
}

#[tokio::test]
async fn a_pop_shows_what_has_changed() {
    let service = Service::start().await;
    let queue = client(&service).queue("q");
    queue.add(&json!({"key": "a", "price": 10, "sale": null})).await.expect("an add");
    let first = queue.pop().with_diff().await.expect("a pop").items.remove(0);
    assert_eq!((first.diff, first.known), (Difference::Null, None), "nothing was acknowledged");
    queue.ack(&[&first.lease.id]).await.expect("an ack");
    queue.update(&json!({"key": "a", "price": null})).await.expect("an update");
    let waiting = queue.item("a").with_diff().await.expect("an item");
    let second = queue.pop().with_known().with_diff().await.expect("a pop").items.remove(0);
    assert!(second.known.is_some());
    let operation = |op, path: &str, value: Option<&str>, old: &str| DiffOperation {
        op,
        path: path.to_owned(),
        value: value.map(RawJson::from_valid),
        old: Some(RawJson::from_valid(old)),
    };
    let expected = [
        operation(DiffOp::Replace, "/price", Some("null"), "10"),
        operation(DiffOp::Remove, "/sale", None, "null"),
    ];
    assert_eq!(second.diff.operations(), Some(&expected[..]));
    assert_eq!(waiting.diff, second.diff);
    assert_eq!(queue.item("a").await.expect("an item").diff, Difference::Absent);
    queue.release(&[&second.lease.id]).await.expect("a release");
    assert_eq!(queue.pop().await.expect("a pop").items[0].diff, Difference::Absent);
}

#[tokio::test]
async fn a_list_that_breaks_off_changes_nothing() {
    let service = Service::start().await;
    let client = client(&service);
    let queue = client.queue("q");
    let mut reflector = Reflector::new(client.clone(), ReflectorOptions::new("q", "erp"));
    // More than a reflector keeps, so the request is under way when the list ends.
    for end in [Some(Err(io::Error::other("the source failed"))), None] {
        let events = list(18, 500 << 10).into_iter().chain(end);
        let error = reflector.run(stream::iter(events)).await.expect_err("the list is not complete");
        assert!(matches!(error, ReflectorError::Source(_) | ReflectorError::IncompleteList), "{error:?}");
    }
    let is_empty = match queue.latest().await {
        Ok(page) => page.items.is_empty(),
        Err(error) => error.code() == Some("queue-not-found"),
    };
    assert!(is_empty, "nothing of a list is queued");
    let events = list(18, 500 << 10).into_iter().chain([Ok(Event::InitDone)]);
    let report = reflector.run(stream::iter(events)).await.expect("the list is complete");
    assert_eq!((report.lists, report.listed, report.counts.replaced), (1, 18, 18));
    let error = reflector.run(stream::iter([Ok::<_, io::Error>(Event::Init), Ok(Event::InitDone)])).await;
    let code = match error {
        Err(ReflectorError::Send { source, .. }) => source.code().map(str::to_owned),
        other => panic!("{other:?}"),
    };
    assert_eq!(code.as_deref(), Some("mass-delete"));
}

#[tokio::test]
async fn two_reflectors_of_one_source_notice_each_other() {
    let service = Service::start().await;
    let client = client(&service);
    let change = || stream::iter([Ok::<_, io::Error>(Event::Apply(raw(&json!({"key": "a"}))))]);
    let reflector = || Reflector::new(client.clone(), ReflectorOptions::new("q", "erp"));
    let (mut first, mut second) = (reflector(), reflector());
    first.run(change()).await.expect("the first number");
    second.run(change()).await.expect("the second number");
    let error = first.run(change()).await.expect_err("the number is taken");
    let is_taken =
        matches!(error, ReflectorError::Send { source: Error::SequenceTaken { sequence: 2, .. }, .. });
    assert!(is_taken, "{error:?}");
}

/// Sends the events of a handler to a channel. It returns from a call once the channel has room.
struct Events(mpsc::Sender<String>);

impl Events {
    async fn send(&self, event: String) {
        let _closed = self.0.send(event).await;
    }
}

impl Handler<Value> for Events {
    async fn on_add(&mut self, object: Arc<Object<Value>>, is_in_initial_list: bool) {
        self.send(format!("add {} {is_in_initial_list}", object.key)).await;
    }

    async fn on_update(&mut self, old: Arc<Object<Value>>, new: Arc<Object<Value>>) {
        self.send(format!("update {} {} {}", new.key, old.object["n"], new.object["n"])).await;
    }

    async fn on_delete(&mut self, deleted: Deleted<Value>) {
        self.send(format!("delete {}", deleted.key())).await;
    }
}

#[tokio::test]
async fn a_slow_handler_gets_the_newest_state_and_delays_nobody() {
    let service = Service::start().await;
    let queue = client(&service).queue("q");
    queue.add(&json!({"key": "a", "n": 0})).await.expect("an object");
    let informer: Informer<Value> = queue.informer();
    let ((slow, mut of_slow), (quick, mut of_quick)) = (mpsc::channel(1), mpsc::channel(100));
    let (store, registration) = (informer.store(), informer.add_handler(Events(slow)));
    informer.add_handler(Events(quick));
    spawn(async move {
        informer.run().await;
    });
    assert!(store.synced().wait().await);
    for number in 1..=20 {
        queue.update(&json!({"key": "a", "n": number})).await.expect("an update");
        let update = format!("update a {} {number}", number - 1);
        while of_quick.recv().await.expect("an event") != update {}
    }
    assert_eq!(store.get("a").expect("an object").object["n"], 20);
    // The channel holds the add, the handler waits with an update, and all later updates are one.
    assert_eq!(of_slow.recv().await.as_deref(), Some("add a true"));
    let (mut at, mut calls) = (0, 0);
    while at < 20 {
        let update = of_slow.recv().await.expect("an update");
        let to: u64 = update.rsplit(' ').next().and_then(|to| to.parse().ok()).expect("a number");
        assert_eq!(update, format!("update a {at} {to}"));
        (at, calls) = (to, calls + 1);
    }
    assert!(calls <= 2, "20 updates took {calls} calls");
    assert!(registration.has_synced());
}

#[tokio::test]
async fn prices_get_from_a_list_to_the_handler() {
    let service = Service::start().await;
    let client = client(&service);
    let (sender, mut received) = mpsc::channel(10);
    let stop = CancellationToken::new();
    let worker = client.queue("q").worker().concurrency(2).batch(10);
    let working = spawn({
        let stop = stop.clone();
        async move {
            let handle = move |job: deltaq_client::Job| {
                let sender = sender.clone();
                async move {
                    let price: Option<Value> = job.object()?;
                    let is_first = job.item().attempt == 1;
                    sender.send((job.key().to_owned(), price.is_some())).await.ok();
                    assert!(!(is_first && job.key() == "b"), "no route");
                    Ok::<_, serde_json::Error>(Outcome::Ack)
                }
            };
            let report = worker.run(stop, handle).await.expect("the worker ends cleanly");
            assert_eq!((report.acknowledged, report.nacked, report.panics), (4, 1, 1));
        }
    });
    let mut reflector = Reflector::new(client.clone(), ReflectorOptions::new("q", "shop"));
    let listed = |keys: &[&str]| {
        let objects = keys.iter().map(|key| Event::InitApply(raw(&json!({ "key": key }))));
        let events = [Event::Init].into_iter().chain(objects).chain([Event::InitDone]);
        stream::iter(events.map(Ok::<_, io::Error>).collect::<Vec<_>>())
    };
    let mut handled = Vec::new();
    for (keys, deliveries) in [(["a", "b", "c"].as_slice(), 4), (["a", "b"].as_slice(), 1)] {
        reflector.run(listed(keys)).await.expect("the list is taken");
        for _ in 0..deliveries {
            handled.push(received.recv().await.expect("a delivery"));
        }
        let version = client.queue("q").synced().resource_version("now").wait(Duration::from_secs(50)).await;
        assert_eq!(version.expect("a reply").reached, Some(true));
    }
    handled.sort();
    let expected = [("a", true), ("b", true), ("b", true), ("c", false), ("c", true)];
    assert_eq!(handled, expected.map(|(key, is_present)| (key.to_owned(), is_present)));
    stop.cancel();
    working.await.expect("the worker ends");
}

/// A service on a folder, with a token that reads and one that only produces.
async fn restartable(folder: &Path, listen: SocketAddr) -> Service {
    let folder = folder.to_owned();
    Service::with(|settings| {
        settings.storage.in_memory = false;
        settings.storage.data_dir = folder;
        settings.server.listen = listen;
        let (both, produces) = ([Verb::Produce, Verb::Read], [Verb::Produce]);
        settings.access.tokens = vec![token("reads", &both, "*"), token("produces", &produces, "*")];
    })
    .await
}

#[tokio::test]
async fn a_producer_knows_a_restart_from_a_restore_if_it_may_ask() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = restartable(folder.path(), SocketAddr::from(([127, 0, 0, 1], 0))).await;
    let listen = service.api;
    let queue = |token: &str| {
        let mut options = ClientOptions::new(listen.to_string());
        options.token = Some(token.to_owned());
        Client::new(options).expect("an address").queue("q")
    };
    let change = DeltaCall {
        kind: DeltaCallType::Deleted,
        key: Some("a".to_owned()),
        object: None,
        source: None,
        delay: None,
        debounce: None,
        head_start: None,
        max_wait: None,
        final_state_unknown: false,
        expected_version: None,
    };
    let changes = [change];
    let mut reads = queue("reads").producer("erp").await.expect("the last number");
    let mut produces = queue("produces").producer_without_sequence("wms");
    for producer in [&mut reads, &mut produces] {
        producer.deltas(&changes).await.expect("a change");
        producer.check_queue().await.expect("the same queue");
    }
    service.shutdown.signal();
    service.stopped().await;
    let _service = restartable(folder.path(), listen).await;
    // Nothing is lost, and the first one has asked.
    reads.check_queue().await.expect("the queue has everything");
    reads.deltas(&changes).await.expect("a change");
    produces.check_queue().await.expect("it may not ask");
    let lost = produces.deltas(&changes).await.expect_err("it may not ask");
    assert!(matches!(lost, Error::QueueRestored { .. }), "{lost:?}");
    produces
        .replace(&ReplaceOptions::default(), Body::Json("[]".into()))
        .await
        .expect("a list needs no answer");
    produces.deltas(&changes).await.expect("a change behind a list");
}

fn reflector() -> ReflectorReport {
    ReflectorReport {
        source: "erp".to_owned(),
        instance: "a".to_owned(),
        version: "1".to_owned(),
        kind: "rest".to_owned(),
        interval: Duration::from_mins(1).into(),
        last_success_at: None,
        failing: false,
        last_error: None,
        last_error_at: None,
        next_list_at: None,
        sent_at: None,
        stopped: false,
    }
}
