//! The alert rules and the dashboard in a real Prometheus that scrapes real servers.
//!
//! One healthy server has all kinds of load; each other server has one fault. The rules run sixty times as fast as in
//! production. `prometheus` and `promtool` are in the Debian package `prometheus`.

mod board;
mod files;
mod replica;
mod runbook;
mod scene;
mod tools;
mod work;

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use self::board::Board;
use self::scene::{EXPIRING, HEALTHY, REPLICA, Scene};
use self::tools::{Monitor, promtool};
use crate::harness::waiting::until;
use crate::metrics::page::Page;

/// For each server the alerts that must fire, and other alerts that may fire.
const EXPECTED: [(&str, &[&str], &[&str]); 14] = [
    // Its sources are in contact without a list: by reports that there is no change, by calls that queue nothing, and by lists
    // that change nothing. A reflector of it has stopped on purpose.
    (HEALTHY, &[], &[DISK]),
    ("stuck", &["DeltaqWorkerStuck"], &["DeltaqChangesLate"]),
    ("backlog", &["DeltaqBacklogGrowing", "DeltaqNoWorker"], &["DeltaqChangesLate"]),
    // This server can't deliver keys.
    (
        "stalled",
        &["DeltaqJournalStalled"],
        &["DeltaqCallsRefused", "DeltaqBacklogGrowing", "DeltaqNoWorker", "DeltaqChangesLate", DISK],
    ),
    ("parked", &["DeltaqKeysParked"], &[]),
    // All its connections are in use, so it may refuse a monitor whose connection was cut off.
    ("capped", &["DeltaqConnectionsNearLimit"], &["DeltaqDown"]),
    ("silent", &["DeltaqSourceSilent"], &[]),
    ("failing-reflector", &["DeltaqReflectorFailing"], &[]),
    ("dead-reflector", &["DeltaqReflectorDown"], &[]),
    ("failing-key", &["DeltaqKeyFailing"], &["DeltaqChangesLate"]),
    ("crowded", &["DeltaqMemoryNearLimit"], &["DeltaqBacklogGrowing", "DeltaqNoWorker", "DeltaqChangesLate"]),
    ("old-backup", &["DeltaqBackupOld"], &[DISK]),
    (EXPIRING, &["DeltaqCertificateExpires", "DeltaqTokenExpires"], &[]),
    (REPLICA, &["DeltaqSlotLarge"], &[]),
];

/// The disk of the machine that runs the test may be nearly full.
const DISK: &str = "DeltaqDiskLow";

/// A family without data on a server without tokens.
const OF_TOKENS: &str = "deltaq_token_expiry_timestamp_seconds";

/// This many scrapes take 25 s, longer than the delay of any alert that must not fire.
const SCRAPES: u32 = 50;

/// A status that no server here returns.
const ABSENT_STATUS: &str = r#",status="500""#;

/// Families that the dashboard need not show.
const NOT_SHOWN: [&str; 3] =
    ["process_threads", "process_virtual_memory_bytes", "process_virtual_memory_max_bytes"];

#[test]
fn staged_faults_fire_their_alerts_and_every_panel_has_data() {
    let mut scene = Scene::start();
    let monitor = Monitor::start(&scene.targets(), &scene.token, &[(REPLICA, scene.replica.address())]);
    until("a first scrape of all", || monitor.query("up == 1").len() == EXPECTED.len());
    scene.start_load();
    for (server, must, _) in EXPECTED {
        for alert in must {
            let firing = format!(r#"ALERTS{{alertname="{alert}",alertstate="firing",instance="{server}"}}"#);
            until(&format!("{alert} of {server}"), || !monitor.query(&firing).is_empty());
        }
    }
    let scrapes = format!(r#"count_over_time(up{{instance="{HEALTHY}"}}[10m])"#);
    until("enough scrapes", || monitor.number(&scrapes) >= f64::from(SCRAPES));

    let ever = monitor.query(r#"max_over_time(ALERTS{alertstate="firing"}[10m])"#);
    for (server, must, may) in EXPECTED {
        let fired: BTreeSet<&str> = ever
            .iter()
            .filter(|sample| sample.labels["instance"] == server)
            .filter_map(|sample| sample.labels["alertname"].as_str())
            .collect();
        let wrong: Vec<_> =
            fired.iter().filter(|alert| !must.contains(alert) && !may.contains(alert)).collect();
        assert!(wrong.is_empty(), "{server} fires {wrong:?}: {ever:?}\n{}", scene.last_words());
    }

    until("a checkpoint", || {
        monitor.number(&format!(r#"deltaq_checkpoint_duration_seconds_count{{instance="{HEALTHY}"}}"#)) > 0.0
    });
    every_panel_has_data(&monitor);
    every_selector_of_an_alert_has_data(&monitor);
    the_pages_are_clean(&scene);
    scene.end();
}

fn every_panel_has_data(monitor: &Monitor) {
    let board = Board::read();
    let mut without = Vec::new();
    for (place, expr) in board.queries().filter(|(_, expr)| !expr.contains(OF_TOKENS)) {
        let expr = Board::substitute(&expr, HEALTHY, &work::QUEUES);
        // A rate needs some work between two scrapes.
        let found = (0..tools::ATTEMPTS).any(|attempt| {
            if attempt > 0 {
                tools::pause();
            }
            monitor.query(&expr).iter().any(|sample| !sample.value.is_nan())
        });
        if !found {
            without.push(format!("{place}: {expr}"));
        }
    }
    assert!(without.is_empty(), "no data:\n{}", without.join("\n"));
}

fn every_selector_of_an_alert_has_data(monitor: &Monitor) {
    let rules = monitor.rules();
    assert_eq!(rules.len(), files::alerts().len(), "Prometheus has loaded all rules");
    for rule in rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let expr = rule["query"].as_str().expect("an expression");
        let selectors = board::selectors(expr);
        assert!(!selectors.is_empty(), "{expr}");
        for selector in selectors {
            let selector = selector.replace(ABSENT_STATUS, "");
            let found = monitor.query(&format!("last_over_time({selector}[10m])"));
            assert!(!found.is_empty(), "{}: {selector} has no data", rule["name"]);
        }
    }
}

fn the_pages_are_clean(scene: &Scene) {
    let board = Board::read();
    let shown: String = board.queries().map(|(_, expr)| expr).collect();
    for text in [scene.page(HEALTHY), scene.replica.page()] {
        let output = promtool(&["check", "metrics"], &text);
        assert_eq!(output, "", "promtool reports no problem");
        let page = Page::read(&text);
        let absent = page.types.keys().filter(|family| !shown.contains(family.as_str()));
        let absent: Vec<_> = absent.filter(|family| !NOT_SHOWN.contains(&family.as_str())).collect();
        assert!(absent.is_empty(), "the dashboard does not show {absent:?}");
    }
}

#[test]
fn promtool_accepts_the_files() {
    tools::require();
    let folder = files::folder();
    for (check, file) in [
        (["check", "config"], "prometheus.yml"),
        (["check", "rules"], "deltaq.rules.yml"),
        (["test", "rules"], "deltaq.rules.test.yml"),
    ] {
        let path = folder.join(file).display().to_string();
        let output = promtool(&[check[0], check[1], &path], "");
        assert!(output.contains("SUCCESS") && !output.contains("WARNING"), "{check:?} {file}: {output}");
    }
    let compose = tempfile::tempdir().expect("a folder");
    // deploy/compose.yaml puts both files into one folder.
    let files = ["deploy/compose/prometheus.yml", "config/prometheus/deltaq.rules.yml"];
    for file in files.map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join(file)) {
        std::fs::copy(&file, compose.path().join(file.file_name().expect("a name"))).expect("a copy");
    }
    let path = compose.path().join("prometheus.yml").display().to_string();
    let output = promtool(&["check", "config", &path], "");
    assert!(output.contains("SUCCESS: 1 rule files found"), "{output}");
    assert!(promtool_refuses(&["check", "metrics"], "# TYPE a counter\na 1\n"), "promtool checks nothing");
}

fn promtool_refuses(arguments: &[&str], input: &str) -> bool {
    !tools::try_promtool(arguments, input).0
}

/// A member of a document that must be text.
fn text<'a>(document: &'a Value, name: &str) -> &'a str {
    document[name].as_str().unwrap_or_else(|| panic!("{name} is not a text: {document}"))
}
