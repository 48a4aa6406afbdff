//! Workers and other loops against servers that misbehave.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::*;
use crate::client::{Client, ClientOptions};
use crate::log::Log;
use crate::queue::Queue;
use crate::reflector::{Event, Reflector, ReflectorOptions};
use crate::{Informer, InformerNotice};

type Lines = Arc<Mutex<Vec<String>>>;

/// A queue of the server at an address, and the lines of its log.
fn logged(url: &str) -> (Queue, Lines) {
    let lines = Lines::default();
    let seen = lines.clone();
    let mut options = ClientOptions::new(url);
    options.retry.first = Duration::from_millis(1);
    options.retry.max = Duration::from_millis(1);
    options.log = Log::new(move |_, line| seen.lock().push(line.to_owned()));
    (Client::new(options).unwrap().queue("q"), lines)
}

/// The address of a server that answers each request with the next of these texts, and then with nothing.
fn answering(replies: Vec<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for reply in replies {
            let mut connection = listener.accept().unwrap().0;
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(text) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = text.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.take(length).read_to_end(&mut Vec::new()).unwrap();
            connection.write_all(reply.as_bytes()).unwrap();
        }
    });
    address
}

fn reply(status: u16, text: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}", text.len())
}

fn problem(status: u16, code: &str) -> String {
    let text = format!(
        r#"{{"type":"t","title":"t","status":{status},"detail":"d","code":"{code}","retryable":false,"request_id":"r"}}"#
    );
    reply(status, &text)
}

const BRIEF: Duration = Duration::from_millis(300);
const NOWHERE: &str = "http://127.0.0.1:9";

#[tokio::test]
async fn nothing_waits_silently_for_a_server() {
    let (queue, lines) = logged(NOWHERE);
    let taken = || std::mem::take(&mut *lines.lock());
    let line = |name: &str, limit: &str| {
        let all = taken();
        let end = format!("the {name} of the queue \"q\" is repeated{limit}");
        assert!(
            all.len() == 1
                && all[0].starts_with("can't connect to http://127.0.0.1:9: ")
                && all[0].ends_with(&end),
            "{all:?}"
        );
    };
    let _ = timeout(BRIEF, async { queue.add_key("a").await }).await;
    line("add", " for up to 120s");
    let _ = timeout(BRIEF, queue.worker().run(CancellationToken::new(), |_| async {})).await;
    line("pop", "");
    let informer: Informer = queue.informer();
    let _ = timeout(BRIEF, informer.run()).await;
    line("watch", "");
    let list = futures_util::stream::iter([Ok::<_, Error>(Event::Init), Ok(Event::InitDone)]);
    let _ = timeout(BRIEF, Reflector::new(queue.client().clone(), ReflectorOptions::new("q", "s")).run(list))
        .await;
    line("GET", " for up to 120s");
    let observed = queue.worker().on_notice(|_| {});
    let _ = timeout(BRIEF, observed.run(CancellationToken::new(), |_| async {})).await;
    assert!(taken().is_empty(), "an observer gets it");
}

#[tokio::test]
async fn the_log_says_that_the_server_answers_again() {
    let produced = r#"{"resource_version":1,"queued":1,"merged":0,"ignored":0,"stale":0,"duplicate":false,"sequence":null,
        "incarnation":"i","life":"l","keys":null,"invalid":0,"invalid_objects":[]}"#;
    let (queue, lines) = logged(&answering(vec![String::new(), reply(200, produced)]));
    queue.add_key("a").await.unwrap();
    let lines = lines.lock();
    assert!(
        lines.len() == 2 && lines[1] == "the server answers again: the add of the queue \"q\" has a reply",
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_source_that_fails_is_logged() {
    let (queue, lines) = logged(NOWHERE);
    let mut reflector = Reflector::new(queue.client().clone(), ReflectorOptions::new("q", "shop"));
    let broken = || futures_util::stream::iter([Err::<Event, _>("the shop is closed")]);
    let _ = timeout(BRIEF, reflector.keep_running(broken)).await;
    let lines = lines.lock();
    let start = "queue q, source shop: the source failed: the shop is closed; it is read again in ";
    assert!(lines.len() == 1 && lines[0].starts_with(start), "{lines:?}");
}

/// The time is that of the test, so it does not depend on the machine.
#[tokio::test(start_paused = true)]
async fn a_worker_that_has_reached_no_server_stops_at_once() {
    let mut options = ClientOptions::new(NOWHERE);
    options.retry.first = Duration::from_hours(1);
    options.retry.max = Duration::from_hours(1);
    options.log = Log::none();
    let worker = Client::new(options).unwrap().queue("q").worker();
    let stop = CancellationToken::new();
    let began = Instant::now();
    let (ended, ()) = tokio::join!(worker.run(stop.clone(), |_| async {}), async {
        tokio::time::sleep(BRIEF).await;
        stop.cancel();
    });
    assert!(ended.is_ok() && began.elapsed() < LAST_CALLS / 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_server_without_tls_is_no_reason_to_repeat() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = format!("https://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            connection.unwrap().write_all(reply(400, "").as_bytes()).unwrap();
        }
    });
    let (queue, _) = logged(&plain);
    let error =
        timeout(Duration::from_secs(20), async { queue.status().await }).await.expect("it ends").unwrap_err();
    assert!(
        matches!(error, Error::Connect { .. }) && !error.is_retryable() && error.is_temporary(),
        "{error:?}"
    );
}

#[tokio::test]
async fn failures_of_handlers_and_parked_keys_are_logged() {
    let keys = ["fails", "panics", "rejects", "late"];
    let items = keys.map(|key| {
        format!(
            r#"{{"key":"{key}","lease":{{"id":"l-{key}","token":1,"worker":"w","expires_at":"2026-11-28T00:00:00.000Z","expires_in_ms":30000}},
            "attempt":3,"failures":2,"is_in_initial_list":false,"deltas":[]}}"#
        )
    });
    let settled = keys.map(|key| {
        let how = if key == "rejects" { "reject" } else { "nack" };
        format!(
            r#"{{"lease_id":"l-{key}","as":"{how}","result":"ok","outcome":null,"failures":3,"parked":{}}}"#,
            key != "late"
        )
    });
    let body = |items: &[String], settled: &[String]| {
        let (items, settled) = (items.join(","), settled.join(","));
        reply(
            200,
            &format!(
                r#"{{"items":[{items}],"settled":[{settled}],"closed":false,"paused":false,"held_until":null}}"#
            ),
        )
    };
    let replies = vec![body(&items, &[]), body(&[], &settled), problem(409, "queue-closed")];
    let (queue, lines) = logged(&answering(replies));
    let worker = queue.worker().concurrency(4);
    let report = worker
        .run(CancellationToken::new(), |job: Job| async move {
            match job.key() {
                "fails" => Outcome::nack("the webhook is down"),
                "panics" => panic!("boom"),
                "late" => {
                    Outcome::Nack { delay: Some(BRIEF), floor: false, error: Some("chosen".to_owned()) }
                }
                _ => Outcome::reject("never"),
            }
        })
        .await
        .unwrap();
    assert_eq!((report.nacked, report.rejected), (3, 1));
    let mut lines = lines.lock().clone();
    lines.sort();
    let parked = "the key is parked: it is not delivered until it changes or is redriven";
    assert_eq!(
        lines,
        [
            "queue q, key fails, attempt 3: the handler has failed: the webhook is down".to_owned(),
            format!("queue q, key fails, attempt 3: {parked}"),
            "queue q, key panics, attempt 3: the handler has panicked: boom".to_owned(),
            format!("queue q, key panics, attempt 3: {parked}"),
            format!("queue q, key rejects, attempt 3: {parked}"),
        ]
    );
}

#[tokio::test]
async fn a_list_after_an_expired_version_is_no_failure() {
    let list =
        "id: life-2\ndata: {\"type\":\"Bookmark\",\"resource_version\":2,\"initial_events_end\":true}\n\n";
    let (queue, lines) =
        logged(&answering(vec![reply(200, list), problem(410, "expired"), problem(401, "unauthorized")]));
    let notices = Lines::default();
    let seen = notices.clone();
    let informer: Informer = queue.informer();
    let informer = informer.on_notice(move |notice| {
        let text = if matches!(notice, InformerNotice::Relist) {
            "relist".to_owned()
        } else {
            format!("{notice:?}")
        };
        seen.lock().push(text);
    });
    let ended = timeout(Duration::from_secs(20), informer.run()).await.expect("it ends");
    assert_eq!(
        (notices.lock().as_slice(), lines.lock().len()),
        (["relist".to_owned()].as_slice(), 0),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_queue_without_a_name_is_refused_before_a_call() {
    let queue = logged(NOWHERE).0.client().queue("");
    let name = "not sent: the empty text is no name, such as that of a queue";
    assert_eq!(queue.status().await.unwrap_err().to_string(), name);
    assert_eq!(
        queue.worker().run(CancellationToken::new(), |_| async {}).await.unwrap_err().to_string(),
        name
    );
    let informer: Informer = queue.informer();
    assert!(crate::log::chain(&informer.run().await).ends_with(name));
    assert!(Client::at("").unwrap_err().to_string().starts_with("the address of the server is empty"));
}
