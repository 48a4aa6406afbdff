//! Dropped lines, suppressed refusals, and reports of failed writes.

use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::telemetry::json_format;

fn open(path: &Path) -> (Audit, Writer) {
    let settings = config::Audit { file: Some(path.to_owned()), ..config::Settings::default().audit };
    let (audit, writer) = Audit::open(&settings).unwrap();
    (audit, writer.unwrap())
}

fn record(audit: &Audit, class: Class, who: Option<&str>, outcome: &'static str) {
    record_operation(audit, class, who, None, outcome);
}

fn record_operation(
    audit: &Audit,
    class: Class,
    who: Option<&str>,
    operation: Option<&'static str>,
    outcome: &'static str,
) {
    audit.record(class, who, || Line {
        at: Timestamp::from_micros(1_763_737_964_018_000),
        operation,
        request_id: "1",
        who,
        from: None,
        certificate: None,
        verb: None,
        method: "GET",
        route: "/v1/queues",
        queue: None,
        keys: None,
        outcome,
        status: None,
    });
}

/// Runs the writer to its end, and reads the lines.
async fn written(writer: Writer, path: &Path) -> Vec<serde_json::Value> {
    let closing = CancellationToken::new();
    closing.cancel();
    writer.run(closing).await;
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn dropped_lines_are_counted_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let line = |text: &str| format!("\"{text}\"\n");
    // Every write to /dev/full fails with ENOSPC.
    let mut full = LogFile::open("/dev/full".into()).unwrap();
    assert_eq!(write(&mut full, &[line("a"), line("b")], 0).unwrap_err().lines, 2);
    assert_eq!(write(&mut full, &[line("c")], 2).unwrap_err().lines, 1);
    let mut file = LogFile::open(path.clone()).unwrap();
    write(&mut file, &[line("d")], 3).unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "{\"lost\":3}\n\"d\"\n");
}

#[tokio::test]
async fn the_reserved_part_of_the_buffer_is_for_admins() {
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
async fn the_refusals_of_each_caller_are_limited_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, writer) = open(&path);
    for _ in 0..300 {
        record(&audit, Class::Refusal, None, "unauthorized");
        record(&audit, Class::Refusal, Some("erp"), "too-many-requests");
        record(&audit, Class::Call, Some("worker"), "forbidden");
    }
    record(&audit, Class::Refusal, Some("other"), "too-many-requests");
    audit.record_suppressed("now");
    record(&audit, Class::Refusal, None, "unauthorized");
    audit.record_suppressed("then");
    let lines = written(writer, &path).await;
    let count = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).count();
    assert_eq!(
        (count("unauthorized"), count("too-many-requests"), count("forbidden")),
        (101, 101, 300),
        "one limit for each caller"
    );
    let reports: Vec<String> =
        lines.iter().filter(|line| line["time"] == "now").map(ToString::to_string).collect();
    assert_eq!(
        reports,
        [r#"{"time":"now","suppressed":200}"#, r#"{"time":"now","who":"erp","suppressed":200}"#],
        "one report for unauthenticated callers, one for the token"
    );
    assert!(lines.iter().all(|line| line["time"] != "then"), "nothing was suppressed since");
    assert_eq!((audit.suppressed(), audit.lost()), (400, 0));
}

#[tokio::test]
async fn a_reopen_does_not_wait_for_the_buffer() {
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
fn refusals_are_limited_without_a_file_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = Arc::new(std::fs::File::create(&path).unwrap());
    let subscriber = tracing_subscriber::fmt().event_format(json_format()).with_writer(log).finish();
    tracing::subscriber::with_default(subscriber, || {
        let audit = Audit::default();
        for _ in 0..=crate::suppression::LINES_MAX {
            record(&audit, Class::Refusal, None, "unauthorized");
        }
        audit.record_suppressed("now");
    });
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.matches("unauthorized").count(), 100);
    assert_eq!(text.matches("\"suppressed\":1").count(), 1, "{text}");
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_reported_once_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let log = Arc::new(std::fs::File::create(&path).unwrap());
    let subscriber = tracing_subscriber::fmt().event_format(json_format()).with_writer(log).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let reports = || std::fs::read_to_string(&path).unwrap().matches("lines are dropped").count();
    let fail = |failures: &mut Failures| {
        for _ in 0..1_000 {
            failures.add(Failed { lines: 1, error: io::Error::from(io::ErrorKind::StorageFull) });
        }
    };
    let mut failures = Failures::default();
    fail(&mut failures);
    assert_eq!((reports(), failures.lines), (1, 999), "the first at once");
    failures.due().await;
    failures.report();
    assert_eq!((reports(), failures.lines), (2, 0), "the rest a second later");
    tokio::time::advance(REPORT_PERIOD).await;
    fail(&mut failures);
    assert_eq!(reports(), 3);
    failures.end();
    assert_eq!(reports(), 4, "the rest is reported when a write succeeds");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let sum: u64 = lines.filter_map(|line| line["lines"].as_u64()).sum();
    assert_eq!(sum, 2_000);
    assert!(text.contains("can be written again"), "{text}");
}

#[test]
fn a_pipe_that_nobody_reads_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let settings = config::Audit { file: Some(path), ..config::Settings::default().audit };
    let refused = Audit::open(&settings).unwrap_err();
    assert!(refused.source.to_string().contains("no process reads it"), "{refused:?}");
}

#[tokio::test]
async fn the_activity_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, writer) = open(&path);
    record_operation(&audit, Class::Admin, Some("root"), Some("purge_queue"), "ok");
    written(writer, &path).await;
    // logrotate has moved the file.
    std::fs::rename(&path, folder.path().join("audit.jsonl.1")).unwrap();
    let (audit, writer) = open(&path);
    record_operation(&audit, Class::Admin, None, Some("pause_queue"), "gone");
    record_operation(&audit, Class::Refusal, Some("erp"), None, "forbidden");
    record(&audit, Class::Admin, Some("root"), "ok");
    let before = audit.activity().newest(10, |_| true);
    assert_eq!(before.len(), 2);
    written(writer, &path).await;
    // A line that says how many were lost, and one that a crash has cut.
    let cut = "{\"lost\":3}\n{\"time\":\"2026-11-21T15:1";
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + cut).unwrap();
    let (audit, writer) = open(&path);
    assert_eq!(audit.activity().newest(10, |_| true), before);
    // The next line is whole.
    record_operation(&audit, Class::Admin, Some("ops"), Some("put_queue"), "ok");
    let closing = CancellationToken::new();
    closing.cancel();
    writer.run(closing).await;
    let (audit, _writer) = open(&path);
    assert_eq!(audit.activity().newest(10, |entry| &*entry.operation == "put_queue").len(), 1);
}

#[tokio::test]
async fn many_calls_of_one_token_do_not_hide_those_of_others_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let (audit, writer) = open(&path);
    record_operation(&audit, Class::Admin, Some("rare"), Some("purge_queue"), "ok");
    for _ in 0..40_000 {
        record_operation(&audit, Class::Admin, Some("busy"), Some("pause_queue"), "ok");
    }
    written(writer, &path).await;
    assert!(std::fs::metadata(&path).unwrap().len() > 4 << 20);
    let (audit, _writer) = open(&path);
    assert_eq!(audit.activity().newest(10, |entry| entry.by.as_deref() == Some("rare")).len(), 1);
}

#[test]
fn only_whole_lines_of_the_end_of_a_file_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let line = "0123456789".repeat(100) + "\n";
    std::fs::write(&path, line.repeat(70_000)).unwrap();
    let (mut count, mut is_whole) = (0, true);
    let take = |found: &[u8]| {
        count += 1;
        is_whole &= found.len() == line.len() - 1;
    };
    log_file::lines(&path, take).unwrap();
    assert_eq!((count, is_whole), ((64 << 20) / line.len(), true));
    log_file::lines("/dev/null".as_ref(), |_| unreachable!("no file")).unwrap();
}
