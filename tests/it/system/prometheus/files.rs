//! The files of `config/prometheus`, and their variants for tests.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::scene::EXPIRING;

/// Interval of scrapes and rule evaluations; it is 15 s in production.
const INTERVAL: &str = "500ms";

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config/prometheus")
}

fn rules() -> String {
    fs::read_to_string(folder().join("deltaq.rules.yml")).expect("the file is there")
}

/// The parts of an alert rule that tests need without Prometheus.
#[derive(Debug)]
pub(super) struct Alert {
    pub(super) name: String,
    pub(super) severity: String,
    pub(super) runbook_url: String,
}

/// All alerts, in the order of the file.
pub(super) fn alerts() -> Vec<Alert> {
    let rules = rules();
    let blocks = rules.split("\n      - alert: ").skip(1);
    let alerts = blocks.map(|block| {
        let field = |name: &str| {
            let line = block.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
            line.unwrap_or_else(|| panic!("an alert has no {name}: {block}")).trim_matches('"').to_owned()
        };
        for name in ["for", "summary", "description"] {
            field(name);
        }
        let name = block.lines().next().unwrap_or_default().to_owned();
        Alert { name, severity: field("severity"), runbook_url: field("runbook_url") }
    });
    alerts.collect()
}

/// The rules with seconds in place of minutes.
pub(super) fn fast_rules() -> String {
    faster(&rules())
}

fn faster(rules: &str) -> String {
    let mut fast = String::new();
    let mut rest = rules;
    while let Some(digit) = rest.find(|char: char| char.is_ascii_digit()) {
        let number = &rest[digit..];
        let end = number.find(|char: char| !char.is_ascii_digit()).unwrap_or(number.len());
        let after = &number[end..];
        let is_span = after.strip_prefix('m').is_some_and(|next| !next.starts_with(char::is_alphanumeric));
        fast.push_str(&rest[..digit + end]);
        fast.push_str(if is_span { "s" } else { "" });
        rest = if is_span { &after[1..] } else { after };
    }
    (fast + rest).replace("* 60", "* 1")
}

/// A configuration that scrapes these servers and reflectors.
pub(super) fn configuration(
    servers: &[(&str, SocketAddr)],
    token: &str,
    reflectors: &[(&str, SocketAddr)],
) -> String {
    let mut text = format!("global: {{scrape_interval: {INTERVAL}, evaluation_interval: {INTERVAL}}}\n");
    text.push_str("rule_files: [deltaq.rules.yml]\nscrape_configs:\n");
    for (job, targets) in [("deltaq", servers), ("deltaq-reflect", reflectors)] {
        let _ = writeln!(text, "- job_name: {job}\n  authorization: {{credentials: \"{token}\"}}");
        text.push_str("  tls_config: {insecure_skip_verify: true}\n  static_configs:\n");
        for (name, address) in targets {
            let scheme = if *name == EXPIRING { "https" } else { "http" };
            let labels = format!("{{instance: {name}, __scheme__: {scheme}}}");
            let _ = writeln!(text, "  - {{targets: [\"{address}\"], labels: {labels}}}");
        }
    }
    text
}

#[test]
fn the_rules_can_be_run_sixty_times_as_fast() {
    assert_eq!(
        faster("for: 5m [10m] offset 60m 10 * 60 + 256 * 1024 p90mm 3ms"),
        "for: 5s [10s] offset 60s 10 * 1 + 256 * 1024 p90mm 3ms"
    );
    let rules = rules();
    let fast = faster(&rules);
    assert_eq!(faster(&fast), fast, "no duration is in minutes");
    let code: Vec<&str> = rules.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
    let written = code.join("\n");
    for (begin, _) in written.match_indices('[') {
        let span = written[begin + 1..].split(']').next().unwrap_or_default();
        let is_span =
            span.starts_with(|char: char| char.is_ascii_digit()) && span.ends_with(char::is_alphabetic);
        assert!(!is_span || span.ends_with('m'), "[{span}] is not written in minutes");
    }
    for line in code.iter().filter_map(|line| line.trim().strip_prefix("for: ")) {
        assert!(line.ends_with('m'), "for: {line} is not written in minutes");
    }
}
