//! A line of the log as one JSON object.
//!
//! There is a line for each request, so this writes straight into it what the formatter of the library gathers in trees
//! and texts first.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_log::NormalizeEvent as _;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::clock;
use crate::instant::Seconds;
use crate::json::quote;

/// About how long a line is, in bytes.
const LINE_BYTES: usize = 512;

/// The format: `timestamp`, `level`, the fields of the event, `target`.
#[derive(Debug)]
pub(crate) struct Json;

thread_local! {
    static SECONDS: RefCell<Seconds> = const { RefCell::new(Seconds::new()) };
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        out.write_str("{\"timestamp\":\"")?;
        let mut line = Members(String::with_capacity(LINE_BYTES));
        SECONDS.with_borrow_mut(|seconds| seconds.micros(clock::wall_us(), &mut line.0));
        line.0.push('"');
        line.put_text("level", metadata.level().as_str());
        event.record(&mut line);
        line.put_text("target", metadata.target());
        out.write_str(&line.0)?;
        out.write_str("}\n")
    }
}

/// A line, to which members are added, each with a comma before it.
struct Members(String);

impl Members {
    fn put(&mut self, name: &str, write: impl FnOnce(&mut String)) {
        // What comes by the facade `log` tells its place in fields that the metadata has already.
        if name.starts_with("log.") {
            return;
        }
        let Self(text) = self;
        text.push(',');
        quote(text, name);
        text.push(':');
        write(text);
    }

    fn put_text(&mut self, name: &str, value: &str) {
        self.put(name, |text| quote(text, value));
    }
}

impl Visit for Members {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), |text| text.push_str(itoa::Buffer::new().format(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), |text| text.push_str(itoa::Buffer::new().format(value)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no NaN.
        self.put(field.name(), |text| text.push_str(&serde_json::Value::from(value).to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), |text| text.push_str(if value { "true" } else { "false" }));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put_text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut shown = String::new();
        if write!(shown, "{value:?}").is_ok() {
            self.put_text(field.name(), &shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    /// What is logged, line by line.
    pub(crate) fn lines_of(log: impl FnOnce()) -> Vec<Value> {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        let file: Arc<File> = Arc::new(file);
        let subscriber = tracing_subscriber::fmt().event_format(Json).with_writer(file).finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_is_an_object_whatever_is_in_it() {
        let hostile = "\"\\\n\u{1}\u{7f}é\u{2028}";
        let lines = lines_of(|| {
            tracing::warn!(text = hostile, shown = %hostile, none = None::<u64>, number = 7_u64, below = -7_i64,
                nan = f64::NAN, half = 0.5, truth = true, "it \"says\" {}", 1);
            tracing::info!(target: "elsewhere", "next");
        });
        let mut first = lines[0].clone();
        let at = first["timestamp"].take();
        assert!(humantime::parse_rfc3339(at.as_str().unwrap()).is_ok(), "{at}");
        let expected = json!({
            "timestamp": null, "level": "WARN", "message": "it \"says\" 1", "text": hostile, "shown": hostile,
            "number": 7, "below": -7, "nan": null, "half": 0.5, "truth": true, "target": module_path!(),
        });
        assert_eq!(first, expected);
        assert_eq!((&lines[1]["message"], &lines[1]["target"]), (&"next".into(), &"elsewhere".into()));
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn what_comes_by_the_facade_looks_like_all_else() {
        use tracing_log::log::{Level, Record};
        let record =
            Record::builder().args(format_args!("hello")).level(Level::Warn).target("facade").build();
        let lines = lines_of(|| tracing_log::format_trace(&record).unwrap());
        let mut line = lines[0].clone();
        line["timestamp"].take();
        let expected = json!({"timestamp": null, "level": "WARN", "message": "hello", "target": "facade"});
        assert_eq!(line, expected);
    }
}
