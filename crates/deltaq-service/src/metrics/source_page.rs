//! The metrics of sources and of their reflectors on the page `/metrics`.

use std::time::Duration;

use deltaq_types::ReflectorState;
use metrics::{Key, Label};
use metrics_exporter_prometheus::LabelSet;
use metrics_exporter_prometheus::formatting::{write_help_line, write_metric_line, write_type_line};

use super::queues::{Sample, SourceSample};
use crate::ReflectedSource;

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

/// Name, value and help text of a family of reflectors.
type ReflectorFamily = (&'static str, fn(&ReflectedSource) -> Option<f64>, &'static str);

const REFLECTORS: [ReflectorFamily; 3] = [
    (
        "deltaq_reflector_up",
        |source| Some(f64::from(u8::from(source.state != ReflectorState::Silent))),
        "1 if a reflector of the source has sent a heartbeat within a minute.",
    ),
    (
        "deltaq_reflector_failing",
        |source| Some(f64::from(u8::from(source.state == ReflectorState::Failing))),
        "1 if the last attempt of each live reflector of the source has failed.",
    ),
    (
        "deltaq_reflector_last_success_timestamp_seconds",
        |source| source.last_success_us.map(|at_us| Duration::from_micros(at_us).as_secs_f64()),
        "When the queue was last in step with the source, by the clock of its reflector, in seconds since 1970.",
    ),
];

/// Appends the families that any source has.
pub(super) fn write(text: &mut String, samples: &[Sample]) {
    for (name, value, help) in FAMILIES {
        write_family(text, (name, help), samples, sources_of, |source| (source.name.as_str(), value(source)));
    }
    for (name, value, help) in REFLECTORS {
        write_family(text, (name, help), samples, reflected_of, |source| {
            (source.source.as_str(), value(source))
        });
    }
}

fn sources_of(sample: &Sample) -> &[SourceSample] {
    &sample.sources
}

fn reflected_of(sample: &Sample) -> &[ReflectedSource] {
    &sample.reflected
}

/// Appends a family, if any source has it.
fn write_family<'s, T: 's>(
    text: &mut String,
    (name, help): (&str, &str),
    samples: &'s [Sample],
    sources: impl Fn(&'s Sample) -> &'s [T],
    value: impl Fn(&'s T) -> (&'s str, Option<f64>),
) {
    let mut is_begun = false;
    for sample in samples {
        let Some(queue) = &sample.series.name else { continue };
        for source in sources(sample) {
            let (source, Some(value)) = value(source) else { continue };
            if !is_begun {
                write_help_line(text, name, None, None, help);
                write_type_line(text, name, None, None, "gauge");
                is_begun = true;
            }
            let labels =
                vec![Label::new("queue", queue.as_str().to_owned()), Label::new("source", source.to_owned())];
            let labels = LabelSet::from_key_and_global(&Key::from_parts("", labels), &<_>::default());
            write_metric_line(text, name, None, &labels, None::<(&str, &str)>, value, None);
        }
    }
    if is_begun {
        text.push('\n');
    }
}

fn seconds(at: deltaq_engine::time::Time) -> f64 {
    Duration::from_micros(at.as_micros()).as_secs_f64()
}
