//! The metrics of sources on the page `/metrics`.

use std::time::Duration;

use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};

use super::queues::{Sample, SourceSample};

/// Name, value and help text of a family. A source without the value has no series.
type Family = (&'static str, fn(&SourceSample) -> Option<f64>, &'static str);

const FAMILIES: [Family; 3] = [
    (
        "deltaq_source_last_replace_timestamp_seconds",
        |source| source.last_replaced.map(seconds),
        "When the last complete Replace of the source ended, in seconds since 1970.",
    ),
    (
        "deltaq_source_last_contact_timestamp_seconds",
        |source| source.last_contact.map(seconds),
        "When the source was last in contact: a complete list, a call, or a report that it has no change; in seconds since 1970.",
    ),
    (
        "deltaq_source_stale",
        |source| source.is_stale.map(|is_stale| f64::from(u8::from(is_stale))),
        "1 if the source is silent for longer than its threshold stale_after.",
    ),
];

/// Appends the families that any source has.
pub(super) fn write(text: &mut String, samples: &[Sample]) {
    for (name, value, help) in FAMILIES {
        let mut is_begun = false;
        for sample in samples {
            let Some(queue) = &sample.series.name else { continue };
            for source in &sample.sources {
                let Some(value) = value(source) else { continue };
                if !is_begun {
                    write_help_line(text, name, None, None, help);
                    write_type_line(text, name, None, None, "gauge");
                    is_begun = true;
                }
                let labels = vec![
                    Label::new("queue", queue.as_str().to_owned()),
                    Label::new("source", source.name.as_str().to_owned()),
                ];
                let labels = LabelSet::from_key_and_global(&Key::from_parts("", labels), &<_>::default());
                write_metric_line(text, name, None, &labels, None::<(&str, &str)>, value, None);
            }
        }
        if is_begun {
            text.push('\n');
        }
    }
}

fn seconds(at: deltaq_engine::time::Time) -> f64 {
    Duration::from_micros(at.as_micros()).as_secs_f64()
}
