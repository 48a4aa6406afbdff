//! Exports objects from one store and imports them into another.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use super::*;

/// Unusual objects, in the order of their keys.
const LINES: &str = concat!(
    "{\"key\":\"a \\\"quoted\\\" \\\\ key\",\"object\":{}}\n",
    "{\"key\":\"a/b/../c\",\"source\":\"erp/€ \\\"x\\\"\",\"object\":{ \"n\" :\t1.10000000000000000000000000001e+400 , \"m\":-0.0}}\n",
    "{\"key\":\"sku-1\",\"source\":\"erp\",\"object\":{\"key\":\"sku-1\",\"text\":\"\\u00fc\\n\\\"\\/\",\"list\":[ 1,2 ,{} ]}}\n",
    "{\"key\":\"~1%2F?&#\",\"object\":{\"big\":123456789012345678901234567890}}\n",
    "{\"key\":\"ключ\",\"object\":{\"\":\"\"}}\n",
);

#[test]
fn what_is_exported_is_imported_and_exported_again_byte_for_byte() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.store("one"), scratch.store("two"));
    let imported = run_with("import --queue prices --data-dir", &[&one], LINES).printed();
    assert_eq!(imported, "5 objects are in queue prices\n");
    assert_eq!(run("export --queue prices --data-dir", &[&one]).printed(), LINES);

    let file = scratch.path("prices.ndjson");
    let said = run("export --queue prices --data-dir", &[&one, Path::new("--to"), &file]).printed();
    assert!(said.starts_with("5 objects of queue prices are in "), "{said}");
    assert_eq!(fs::read_to_string(&file).expect("a file"), LINES);
    run("import --queue prices --data-dir", &[&two, Path::new("--from"), &file]).printed();
    assert_eq!(run("export --queue prices --data-dir", &[&two]).printed(), LINES);
    for store in [&one, &two] {
        let said = check(store).printed();
        assert!(said.starts_with("no damage: 1 queues with 5 keys, "), "{said}");
    }

    // A running server accepts the same lines, and a server has the imported objects.
    let server = Server::start(&two);
    server.post("other/seed", LINES);
    for queue in ["prices", "other"] {
        let (status, known) = server.call("GET", &format!("/v1/queues/{queue}/known"), "");
        assert_eq!((status, known.matches("\"resource_version\":").count()), (200, 6), "{known}");
    }
    server.stop();
    assert_eq!(run("export --queue other --data-dir", &[&two]).printed(), LINES);
}

#[test]
fn an_import_makes_its_store() {
    let scratch = Scratch::new();
    let (missing, empty) = (scratch.path("a/b"), scratch.path("empty"));
    fs::create_dir(&empty).expect("a folder");
    for folder in [&missing, &empty] {
        run_with("import --queue prices --data-dir", &[folder], LINES).printed();
        check(folder).printed();
        assert_eq!(run("export --queue prices --data-dir", &[folder]).printed(), LINES);
    }
}

#[test]
fn a_queue_with_a_schema_is_checked_exported_and_imported_by_it() {
    let scratch = Scratch::new();
    let store = scratch.path("store");
    let server = Server::start(&store);
    let rules = r#"{"schema":{"required":["n"],"properties":{"unit":{"default":"kg"}}},"prune":["/x"]}"#;
    for queue in ["from", "to"] {
        server.call("PUT", &format!("/v1/queues/{queue}"), rules);
    }
    server.post("from/seed", r#"{"object":{"key":"a","n":1.0,"x":1}}"#);
    // The queue's schema is only in the journal and must be read from it.
    server.kill();
    let line = "{\"key\":\"a\",\"object\":{\"key\":\"a\",\"n\":1.0,\"unit\":\"kg\"}}\n";
    assert_eq!(run("export --queue from --data-dir", &[&store]).printed(), line);
    let wrong = "{\"object\":{\"key\":\"b\",\"n\":1}}\n{\"object\":{\"key\":\"c\"}}\n";
    let said = run_with("import --queue to --data-dir", &[&store], wrong).refused();
    assert!(said.contains("line 2: ") && said.contains("\"n\" is a required property"), "{said}");
    let other = "{\"object\":{\"key\":\"a\",\"x\":2,\"n\":1.0}}\n";
    run_with("import --queue to --data-dir", &[&store], other).printed();
    assert_eq!(run("export --queue to --data-dir", &[&store]).printed(), line);
    let said = check(&store).printed();
    assert!(said.starts_with("no damage: 2 queues with 2 keys, "), "{said}");
}

#[test]
fn line_breaks_in_an_object_become_spaces() {
    let scratch = Scratch::new();
    let store = scratch.path("store");
    let server = Server::start(&store);
    server.post("prices/add?source=erp", "{\r\n  \"key\": \"a\",\n  \"text\": \"\\n\"\n}");
    server.work("prices");
    // An object that was not acknowledged is not a known object.
    server.post("prices/add", r#"{"key":"b"}"#);
    server.stop();
    let line = "{\"key\":\"a\",\"source\":\"erp\",\"object\":{\r   \"key\": \"a\",   \"text\": \"\\n\" }}\n";
    assert_eq!(run("export --queue prices --data-dir", &[&store]).printed(), line);
}

#[test]
fn an_import_follows_the_rules_of_seeding_and_leaves_the_store_in_order() {
    let scratch = Scratch::new();
    let store = scratch.path("store");
    let server = Server::start(&store);
    server.post("busy/add", r#"{"key":"a"}"#);
    server.post("known/seed", r#"{"key":"old","object":{}}"#);
    server.kill();
    let good = "\n{\"object\":{\"key\":\"a\"}}\r\n   \n{\"key\":\"b\",\"source\":null,\"resource_version\":7,\"object\":{}}";
    let import =
        |queue: &str, text: &str| run_with(&format!("import --queue {queue} --data-dir"), &[&store], text);
    assert!(import("busy", good).refused().contains("queue busy: the queue is not empty: 1 keys"));
    for (line, wrong, what) in [
        (1, "{", "ends inside an object"),
        (3, "\n\n[1]", "object"),
        (2, "{\"key\":\"a\",\"object\":{}}\n{\"object\":{}}", "no key at \"/key\""),
        (1, "{\"key\":\"a\",\"object\":{\"key\":\"b\"}}", "differs from the object's own"),
        (1, "{\"key\":\"a\",\"sauce\":\"erp\",\"object\":{}}", "did you mean \"source\"?"),
        (1, "{\"key\":\"a\",\"source\":1,\"object\":{}}", "source"),
        (1, "{\"key\":\"a\",\"object\":{\"n\":1,\"n\":2}}", "n"),
    ] {
        let said = import("fresh", wrong).refused();
        assert!(said.starts_with(&format!("deltaq: line {line}: ")), "{wrong}: {said}");
        assert!(said.contains(what) && said.contains("nothing was imported"), "{wrong}: {said}");
    }
    let large = format!("{{\"key\":\"a\",\"object\":{{\"t\":\"{}\"}}}}", "x".repeat(1 << 20));
    assert!(import("fresh", &large).refused().contains("line 1: the object has 1048584 bytes"));
    let longer = format!("{{\"key\":\"a\",\"object\":{{\"t\":\"{}\"}}}}", "x".repeat(2 << 20));
    assert!(import("fresh", &longer).refused().contains("line 1: it has more than 1064960 bytes"));
    let said = run("export --queue fresh --data-dir", &[&store]).refused();
    assert!(said.contains("there is no queue fresh") && said.contains("there are busy, known"), "{said}");

    assert_eq!(import("known", good).printed(), "2 objects are in queue known\n");
    let all = "{\"key\":\"a\",\"object\":{\"key\":\"a\"}}\n{\"key\":\"b\",\"object\":{}}\n{\"key\":\"old\",\"object\":{}}\n";
    assert_eq!(run("export --queue known --data-dir", &[&store]).printed(), all);
    let said = check(&store).printed();
    assert!(!said.contains("note") && said.contains(": 2 queues with 4 keys, "), "{said}");
}

/// As [`run_with`], with a pause after each part of the input.
fn run_slowly(words: &str, folder: &Path, parts: &[&str]) -> Run {
    let mut process = command(words, &[folder]).stdin(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = process.stdin.take().expect("a pipe");
    for part in parts {
        // The command may end without reading its input.
        let _written = stdin.write_all(part.as_bytes());
        std::thread::sleep(Duration::from_millis(1_500));
    }
    drop(stdin);
    let output = process.wait_with_output().expect("output");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// No worker can extend or settle a lease during an import.
#[tokio::test]
async fn an_import_that_takes_longer_than_a_lease_does_not_end_it() {
    let scratch = Scratch::new();
    let store = scratch.path("store");
    let server = Server::start(&store);
    server.post("busy/add", r#"{"key":"a"}"#);
    server.post("busy/pop?lease_duration=1s", "");
    server.stop();
    let events = async || {
        let mut connection = open(&store).await;
        let text = "SELECT event.value ->> 'type' FROM journal JOIN queues ON queues.id = journal.queue_id, \
                    json_each(events) AS event WHERE queues.name = 'busy' ORDER BY first_rv, event.id";
        let events: Vec<String> = sqlx::query_scalar(text).fetch_all(&mut connection).await.expect("events");
        connection.close().await.expect("a database");
        events
    };
    let lines = ["{\"key\":\"a\",\"object\":{}}\n", "{\"key\":\"b\",\"object\":{}}\n"];
    let said = run_slowly("import --queue other --data-dir", &store, &lines).printed();
    assert_eq!(said, "2 objects are in queue other\n");
    // A life has begun, and the lease has its full length again, once.
    assert_eq!(events().await, ["appended", "leased", "recovered", "extended"]);
    let said = run_slowly("import --queue busy --data-dir", &store, &[LINES]).refused();
    assert!(said.contains("the queue is not empty"), "{said}");
    let twice = ["appended", "leased", "recovered", "extended", "recovered", "extended"];
    assert_eq!(events().await, twice);
}

#[test]
fn a_reader_that_leaves_is_no_panic() {
    let scratch = Scratch::new();
    let store = scratch.store("store");
    let lines: Vec<String> =
        (0..20_000).map(|n| format!("{{\"key\":\"{n}\",\"object\":{{\"n\":{n}}}}}\n")).collect();
    let lines = lines.concat();
    run_with("import --queue q --data-dir", &[&store], &lines).printed();
    let mut process = command("export --queue q --data-dir", &[&store]).spawn().expect("the binary runs");
    let mut first = String::new();
    // The reader is dropped before it has read everything.
    BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    assert_eq!(first, "{\"key\":\"0\",\"object\":{\"n\":0}}\n");
    let output = process.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("deltaq: the reader closed the output") && !said.contains("panic"), "{said}");
}
