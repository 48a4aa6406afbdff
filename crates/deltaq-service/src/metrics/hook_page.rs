//! The metrics of queues with a hook, on the page `/metrics`.

use std::time::Duration;

use deltaq_types::DeliveryReason;
use metrics_exporter_prometheus::formatting::write_metric_line;

use super::hooks::HookReport;
use super::page::count;
use super::push_page::{head, labels};
use super::queues::Sample;

const DELIVERIES: &str = "deltaq_hook_deliveries_total";
const REJECTED: &str = "deltaq_hook_rejected_total";
const KEPT: &str = "deltaq_hook_kept_deliveries";
const LAST: &str = "deltaq_hook_last_applied_timestamp_seconds";

/// Appends the metrics of the queues with a hook, if there are any.
pub(super) fn write(text: &mut String, samples: &[Sample]) {
    let rows: Vec<(&str, &HookReport)> = samples
        .iter()
        .filter_map(|sample| Some((sample.series.name.as_ref()?.as_str(), sample.hook.as_ref()?)))
        .collect();
    if rows.is_empty() {
        return;
    }
    head(text, DELIVERIES, "counter", "Deliveries of the hook, by result.");
    for (queue, report) in &rows {
        let results = [("applied", report.applied), ("duplicate", report.duplicate), ("stale", report.stale)];
        for (result, number) in results {
            write_metric_line(text, DELIVERIES, None, &labels(queue), Some(("result", result)), number, None);
        }
    }
    text.push('\n');
    head(text, REJECTED, "counter", "Deliveries of the hook that were not applied, by reason.");
    for (queue, report) in &rows {
        for (reason, number) in DeliveryReason::ALL.iter().zip(report.rejected) {
            let reason = Some(("reason", reason.as_str()));
            write_metric_line(text, REJECTED, None, &labels(queue), reason, number, None);
        }
    }
    text.push('\n');
    head(
        text,
        KEPT,
        "gauge",
        "Deliveries of the hook that are kept because they could not be applied, without those that `only` leaves out.",
    );
    for (queue, report) in &rows {
        let kept = count(report.kept);
        write_metric_line(text, KEPT, None, &labels(queue), None::<(&str, &str)>, kept, None);
    }
    text.push('\n');
    let applied = rows.iter().filter_map(|(queue, report)| Some((queue, report.last_applied_us?)));
    let applied: Vec<_> = applied.collect();
    if !applied.is_empty() {
        let help = "When the last delivery of the hook was applied, in seconds since 1970; no series before the first one.";
        head(text, LAST, "gauge", help);
        for (queue, at_us) in applied {
            let seconds = Duration::from_micros(at_us).as_secs_f64();
            write_metric_line(text, LAST, None, &labels(queue), None::<(&str, &str)>, seconds, None);
        }
        text.push('\n');
    }
}
