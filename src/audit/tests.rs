//! What is lost, what is left out, and what never is.

use std::path::Path;

use super::*;
use crate::telemetry::Json;

fn open(path: &Path) -> (Audit, Writer) {
    let settings = config::Audit { file: Some(path.to_owned()), ..config::Audit::default() };
    let (audit, writer) = Audit::open(&settings).unwrap();
    (audit, writer.unwrap())
}

fn record(audit: &Audit, class: Class, who: Option<&str>, outcome: &str) {
    audit.record(class, who, || Line {
        time: "2026-11-21T15:12:44.018Z".to_owned(),
        request_id: "1",
        who,
        from: None,
        verb: None,
        method: "GET",
        route: "/v1/queues",
        queue: None,
        keys: None,
        outcome,
        status: None,
    });
}

/// Lets the writer write all there is, and gives the lines.
async fn written(writer: Writer, path: &Path) -> Vec<serde_json::Value> {
    let closing = CancellationToken::new();
    closing.cancel();
    writer.run(closing).await;
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_that_are_lost_are_counted_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let line = |text: &str| format!("\"{text}\"\n");
    // Every write to it fails for want of room.
    let mut full = Files::open("/dev/full".into(), 1 << 20, 1).unwrap();
    assert_eq!(write(&mut full, &[line("a"), line("b")], 0).unwrap_err().lines, 2);
    assert_eq!(write(&mut full, &[line("c")], 2).unwrap_err().lines, 1);
    let mut files = Files::open(path.clone(), 1 << 20, 1).unwrap();
    write(&mut files, &[line("d")], 3).unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"lost\":3}\n\"d\"\n");
}

#[tokio::test]
async fn a_flood_leaves_places_for_admins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, writer) = open(&path);
    for _ in 0..LINES_MAX {
        record(&audit, Class::Call, Some("worker"), "forbidden");
    }
    for _ in 0..10 {
        record(&audit, Class::Admin, Some("root"), "ok");
    }
    let lines = written(writer, &path).await;
    assert_eq!(lines[0]["lost"], LINES_RESERVED);
    assert_eq!(lines.iter().filter(|line| line["who"] == "worker").count(), LINES_MAX - LINES_RESERVED);
    assert_eq!(lines.iter().filter(|line| line["who"] == "root").count(), 10);
    assert_eq!(audit.lost(), LINES_RESERVED as u64);
}

#[tokio::test]
async fn each_caller_has_so_many_refusals_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, writer) = open(&path);
    for _ in 0..300 {
        record(&audit, Class::Flood, None, "unauthorized");
        record(&audit, Class::Flood, Some("erp"), "too-many-requests");
        record(&audit, Class::Call, Some("worker"), "forbidden");
    }
    record(&audit, Class::Flood, Some("other"), "too-many-requests");
    audit.tell_suppressed("now");
    record(&audit, Class::Flood, None, "unauthorized");
    audit.tell_suppressed("then");
    let lines = written(writer, &path).await;
    let count = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
    assert_eq!(
        (count("unauthorized"), count("too-many-requests"), count("forbidden")),
        (101, 101, 300),
        "as many each second, of each caller"
    );
    let told: Vec<String> =
        lines.iter().filter(|line| line["time"] == "now").map(ToString::to_string).collect();
    assert_eq!(
        told,
        [r#"{"time":"now","suppressed":200}"#, r#"{"time":"now","who":"erp","suppressed":200}"#],
        "those of all strangers, and of the token"
    );
    assert!(lines.iter().all(|line| line["time"] != "then"), "nothing was left out since");
    assert_eq!((audit.suppressed(), audit.lost()), (400, 0));
}

#[tokio::test]
async fn opening_anew_waits_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, writer) = open(&path);
    for _ in 0..LINES_MAX {
        record(&audit, Class::Admin, Some("root"), "ok");
    }
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    audit.reopen();
    assert_eq!(written(writer, &path).await.len(), LINES_MAX);
}

#[test]
fn without_a_file_floods_are_bounded_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = Arc::new(std::fs::File::create(&path).unwrap());
    let subscriber = tracing_subscriber::fmt().event_format(Json).with_writer(log).finish();
    tracing::subscriber::with_default(subscriber, || {
        let audit = Audit::default();
        for _ in 0..=flood::LINES_MAX {
            record(&audit, Class::Flood, None, "unauthorized");
        }
        audit.tell_suppressed("now");
    });
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.matches("unauthorized").count(), 100);
    assert_eq!(text.matches("\"suppressed\":1").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_log_is_told_of_lost_lines_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = Arc::new(std::fs::File::create(&path).unwrap());
    let subscriber = tracing_subscriber::fmt().event_format(Json).with_writer(log).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let told = || std::fs::read_to_string(&path).unwrap().matches("are lost").count();
    let fail = |losses: &mut Losses| {
        for _ in 0..1_000 {
            losses.add(Failed { lines: 1, error: io::Error::from(io::ErrorKind::StorageFull) });
        }
    };
    let mut losses = Losses::default();
    fail(&mut losses);
    assert_eq!((told(), losses.lines), (1, 999), "the first at once");
    losses.due().await;
    losses.tell();
    assert_eq!((told(), losses.lines), (2, 0), "the others a second later");
    tokio::time::advance(TELL_PERIOD).await;
    fail(&mut losses);
    assert_eq!(told(), 3);
    losses.end();
    assert_eq!(told(), 4, "nothing is left untold when lines are written again");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let sum: u64 = lines.filter_map(|line| line["lines"].as_u64()).sum();
    assert_eq!(sum, 2_000);
    assert!(text.contains("written again"), "{text}");
}
