//! The metrics of queues that push, on the page `/metrics`.

use std::time::Duration;

use deltaq_types::PushState;
use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};

use super::page::{count, write_distribution};
use super::pushes::{BOUNDS_US, PushReport};
use super::queues::Sample;

/// The words of the label `result`, in the order of [`PushResult`](super::PushResult).
const RESULTS: [&str; 5] = ["ok", "rejected", "held", "failed", "no_answer"];
const REQUESTS: &str = "deltaq_push_requests_total";
const DURATION: &str = "deltaq_push_request_duration_seconds";
const STATE: &str = "deltaq_push_state";
/// The states that `deltaq_push_state` shows.
const STATES: [PushState; 4] =
    [PushState::Sending, PushState::Failing, PushState::Disabled, PushState::Refused];

/// Name, value and help text of a gauge.
type Gauge = (&'static str, fn(&PushReport) -> Option<f64>, &'static str);

const GAUGES: [Gauge; 3] = [
    ("deltaq_push_in_flight", |report| Some(count(report.in_flight)), "Pushed requests without an answer."),
    (
        "deltaq_push_allowed_in_flight",
        |report| Some(count(report.allowed)),
        "How many pushed requests may be in flight now; 0 while the endpoint fails.",
    ),
    (
        "deltaq_push_last_success_timestamp_seconds",
        |report| report.last_success_us.map(|at_us| Duration::from_micros(at_us).as_secs_f64()),
        "When the endpoint last took a key, in seconds since 1970; no series before the first success.",
    ),
];

/// Appends the metrics of the queues that push, if there are any.
pub(super) fn write(text: &mut String, samples: &[Sample]) {
    let rows: Vec<(&str, &PushReport)> = samples
        .iter()
        .filter_map(|sample| Some((sample.series.name.as_ref()?.as_str(), sample.push.as_ref()?)))
        .collect();
    if rows.is_empty() {
        return;
    }
    head(text, REQUESTS, "counter", "Pushed requests, by result.");
    for (queue, report) in &rows {
        for (result, number) in RESULTS.iter().zip(report.pushes.results) {
            write_metric_line(text, REQUESTS, None, &labels(queue), Some(("result", *result)), number, None);
        }
    }
    text.push('\n');
    head(
        text,
        DURATION,
        "histogram",
        "Time from the start of a pushed request to the last byte of its answer.",
    );
    let bounds = BOUNDS_US.map(|bound_us| Duration::from_micros(bound_us).as_secs_f64());
    for (queue, report) in &rows {
        write_distribution(text, DURATION, &labels(queue), &bounds, &report.pushes.took);
    }
    text.push('\n');
    let help = "1 for what the sender of the queue does: sending, failing, disabled or refused.";
    head(text, STATE, "gauge", help);
    for (queue, report) in &rows {
        for state in STATES {
            let is_state = u8::from(report.state == state);
            let label = Some(("state", state.as_str()));
            write_metric_line(text, STATE, None, &labels(queue), label, is_state, None);
        }
    }
    text.push('\n');
    for (name, value, help) in GAUGES {
        let values = rows.iter().filter_map(|(queue, report)| Some((queue, value(report)?)));
        let mut values = values.peekable();
        if values.peek().is_some() {
            head(text, name, "gauge", help);
            for (queue, value) in values {
                write_metric_line(text, name, None, &labels(queue), None::<(&str, &str)>, value, None);
            }
            text.push('\n');
        }
    }
}

pub(super) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    write_help_line(text, name, None, None, help);
    write_type_line(text, name, None, None, kind);
}

pub(super) fn labels(queue: &str) -> LabelSet {
    let labels = vec![Label::new("queue", queue.to_owned())];
    LabelSet::from_key_and_global(&Key::from_parts("", labels), &<_>::default())
}
