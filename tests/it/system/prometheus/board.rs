//! The dashboard: its queries, with the variables replaced like in Grafana.

use std::collections::BTreeSet;
use std::fs;
use std::iter;
use std::path::Path;

use serde_json::Value;

use super::text;

/// The width of a dashboard.
const COLUMNS: u64 = 24;
/// The oldest schema version that Grafana 11 loads without a change.
const SCHEMA_MIN: u64 = 39;
/// Prefixes of metric names.
const METRICS: [&str; 5] = ["deltaq_", "workqueue_", "process_", "up", "ALERTS"];

pub(super) struct Board {
    document: Value,
}

impl Board {
    pub(super) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/grafana/deltaq.json");
        let text = fs::read_to_string(path).expect("the file is there");
        Self { document: serde_json::from_str(&text).expect("JSON") }
    }

    /// All panels, also those of collapsed rows.
    fn panels(&self) -> Vec<&Value> {
        let panels = self.document["panels"].as_array().expect("panels");
        panels
            .iter()
            .flat_map(|panel| iter::once(panel).chain(panel["panels"].as_array().into_iter().flatten()))
            .collect()
    }

    fn variables(&self) -> &[Value] {
        self.document["templating"]["list"].as_array().expect("variables")
    }

    /// Each expression with its place: the expressions of the panels, and those of the variables, which list label values.
    pub(super) fn queries(&self) -> impl Iterator<Item = (String, String)> {
        let panels = self.panels().into_iter().flat_map(|panel| {
            let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
            targets.iter().map(|target| (text(panel, "title").to_owned(), text(target, "expr").to_owned()))
        });
        let variables = self.variables().iter().filter(|variable| variable["type"] == "query");
        let variables = variables.map(|variable| {
            let query = text(&variable["query"], "query");
            let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (metric, label) = inside.and_then(|inside| inside.rsplit_once(", ")).expect("label_values");
            let place = format!("variable {}", text(variable, "name"));
            (
                place,
                format!("count by ({label}) ({metric}) and count by ({label}) ({metric}{{{label}!=\"\"}})"),
            )
        });
        let variables = variables.map(|(place, expr)| (place, expr.replace("}{", ",")));
        panels.chain(variables).collect::<Vec<_>>().into_iter()
    }

    /// The expression as Grafana would send it.
    pub(super) fn substitute(expr: &str, instance: &str, queues: &[&str]) -> String {
        let queues = format!("({})", queues.join("|"));
        let known =
            [("$__rate_interval", "5s"), ("$instance", instance), ("$job", "deltaq"), ("$queue", &queues)];
        let expr = known.iter().fold(expr.to_owned(), |expr, (name, value)| expr.replace(name, value));
        assert!(!expr.contains('$'), "an unknown variable: {expr}");
        expr
    }
}

/// The selectors of an expression, as in `up{job="deltaq"}`; each metric must have one.
pub(super) fn selectors(expr: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let mut rest = expr;
    while let Some(begin) = rest.find(is_name) {
        let word = &rest[begin..];
        let end = word.find(|char: char| !is_name(char)).unwrap_or(word.len());
        let (name, after) = word.split_at(end);
        rest = after;
        let is_metric = METRICS
            .iter()
            .any(|start| if start.ends_with('_') { name.starts_with(start) } else { name == *start });
        if after.starts_with('{') {
            let close = after.find('}').expect("the braces are closed");
            found.push(format!("{name}{}", &after[..=close]));
            rest = &after[close + 1..];
        } else {
            assert!(!is_metric, "{name} is selected without a job: {expr}");
        }
    }
    found
}

#[test]
fn selectors_are_found_in_every_place() {
    let expr =
        r#"sum by (job) (rate(deltaq_http_requests_total{status=~"4..|5..",job="x"}[5m])) / up{job="x"} > 2"#;
    let expected = [r#"deltaq_http_requests_total{status=~"4..|5..",job="x"}"#, r#"up{job="x"}"#];
    assert_eq!(selectors(expr), expected);
    assert!(std::panic::catch_unwind(|| selectors("rate(deltaq_items[5m])")).is_err());
}

#[test]
fn the_dashboard_can_be_imported_and_read() {
    let board = Board::read();
    assert!(board.document["schemaVersion"].as_u64() >= Some(SCHEMA_MIN));
    assert!(board.document["id"].is_null(), "an id belongs to one Grafana database");
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in board.panels() {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("a position");
        assert!(at("x") + at("w") <= COLUMNS, "{title} does not fit");
        for (x, y) in
            (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
        {
            assert!(taken.insert((x, y)), "{title} overlaps another panel");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(text(panel, "description").ends_with('.'), "{title} is explained");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty(), "{title} shows nothing");
        let ids: BTreeSet<_> = targets.iter().map(|target| text(target, "refId")).collect();
        assert_eq!(ids.len(), targets.len(), "{title}: targets have ids of their own");
        let unit = &panel["fieldConfig"]["defaults"]["unit"];
        let has_unit = unit.is_string() || panel["type"] == "heatmap" || panel["type"] == "state-timeline";
        assert!(has_unit, "{title} has a unit");
    }
    let names: Vec<_> = board.variables().iter().map(|variable| text(variable, "name")).collect();
    assert_eq!(names, ["datasource", "job", "instance", "queue"]);
    let repeats: Vec<_> = board.panels().into_iter().filter(|panel| panel["repeat"].is_string()).collect();
    assert!(matches!(&repeats[..], [row] if row["repeat"] == "queue" && row["collapsed"] == true));
}
