//! The log on stderr: format, filter, and reports of panics.
//!
//! Logging never blocks: `buffer` holds lines until a thread has written them.

pub(crate) mod buffer;

use std::io::{self, IsTerminal as _};
use std::panic::Location;
use std::sync::atomic::Ordering;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::format::{Format, Json};
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use self::buffer::{Buffer, DROPPED, Writer};
use crate::config::{Log, LogFormat, LogLevel};

/// The target of audit lines, for filters.
const AUDIT_TARGET: &str = "audit";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `RUST_LOG` is not a filter.
    #[error("invalid RUST_LOG {filter:?}; a filter looks like \"info,deltaq=debug\"")]
    Filter {
        /// The value.
        filter: String,
        /// What is wrong.
        source: ParseError,
    },
    /// The thread that writes the log can't be started.
    #[error("can't start the thread that writes the log")]
    Thread {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The process already has a log.
    #[error("can't start the log")]
    Start {
        /// Why.
        source: TryInitError,
    },
}

/// A running log. Dropping it writes the buffered lines.
#[derive(Debug)]
pub struct Running(#[expect(dead_code, reason = "held for its Drop")] Writer);

/// Starts the log of the process, on stderr. `rust_log` is the value of `RUST_LOG`, which overrides the level of the settings.
///
/// # Errors
///
/// An invalid filter, or a log that is already running.
pub fn init(log: Log, rust_log: Option<&str>) -> Result<Running, Error> {
    let terminal = io::stderr().is_terminal();
    let filter = filter(log.level, rust_log)?;
    let started = Buffer::start(io::stderr(), report_dropped);
    let (lines, writer) = started.map_err(|source| Error::Thread { source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    // On a terminal, the library decides whether to use colours; it honours NO_COLOR.
    let started = match (is_json(log.format, terminal), terminal) {
        (true, _) => builder.event_format(json_format()).finish().try_init(),
        (false, true) => builder.finish().try_init(),
        (false, false) => builder.with_ansi(false).finish().try_init(),
    };
    started.map_err(|source| Error::Start { source })?;
    Ok(Running(writer))
}

/// The number of log lines dropped since the start because stderr was not read.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Reports panics as log lines, without their message, which may contain a part of an object.
pub fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(Location::to_string);
        tracing::error!(location, "a panic");
    }));
}

/// Reports dropped lines in the format of the log.
fn report_dropped(lines: u64) {
    tracing::error!(lines, "lines of the log were dropped");
}

/// `timestamp`, `level`, the fields of the event, and `target`, in one flat object.
pub(crate) fn json_format() -> Format<Json> {
    tracing_subscriber::fmt::format()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
}

fn is_json(format: LogFormat, terminal: bool) -> bool {
    match format {
        LogFormat::Auto => !terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    }
}

fn filter(level: LogLevel, rust_log: Option<&str>) -> Result<EnvFilter, Error> {
    let text = rust_log.unwrap_or(level.as_str());
    let failed = |source| Error::Filter { filter: text.to_owned(), source };
    let mut filter = EnvFilter::builder().parse(text).map_err(failed)?;
    if text == LogLevel::Info.as_str() {
        // At this level, the file watcher logs its own calls.
        filter = filter.add_directive("notify=warn".parse().map_err(failed)?);
    }
    if decides_on_audit(text) {
        return Ok(filter);
    }
    // The log level does not apply to audit lines.
    let audit = format!("{AUDIT_TARGET}=info").parse().map_err(failed)?;
    Ok(filter.add_directive(audit))
}

/// Whether a filter explicitly decides about audit lines: it names their target, or it is just `off`.
fn decides_on_audit(filter: &str) -> bool {
    let names_it = |directive: &str| {
        let target = directive.split(['=', '[']).next().unwrap_or_default();
        target.trim() == AUDIT_TARGET
    };
    filter.trim().eq_ignore_ascii_case(LogLevel::Off.as_str()) || filter.split(',').any(names_it)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn rust_log_overrides_the_level() {
        let lines = lines_of("deltaq=trace");
        assert_eq!((lines.contains("a detail"), lines.contains("another target")), (true, false), "{lines}");
        let error = filter(LogLevel::Warn, Some("deltaq=loud")).unwrap_err();
        assert!(error.to_string().contains("deltaq=loud"), "{error}");
    }

    /// A file for a log, and its path.
    fn log() -> (Arc<File>, tempfile::TempPath) {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        (Arc::new(file), path)
    }

    /// Returns those of three lines that pass a filter.
    fn lines_of(text: &str) -> String {
        let (log, path) = log();
        let filter = filter(LogLevel::Warn, Some(text)).unwrap();
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::trace!("a detail");
            tracing::info!(target: "elsewhere", "another target");
            tracing::info!(target: "audit", "a call");
        });
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn audit_lines_pass_filters_that_do_not_name_them() {
        for (text, passes) in [
            ("info", true),
            ("warn", true),
            ("deltaq=debug", true),
            ("auditor=warn", true),
            ("off,deltaq=debug", true),
            ("", true),
            ("off", false),
            (" OFF ", false),
            ("info,audit=off", false),
            ("audit=warn,info", false),
            ("warn,audit", true),
        ] {
            assert_eq!(lines_of(text).contains("a call"), passes, "{text:?}");
        }
        assert!(lines_of("deltaq=trace").contains("a call"));
        let of_level = |level| filter(level, None).unwrap().to_string();
        assert_eq!(
            (of_level(LogLevel::Warn), of_level(LogLevel::Off)),
            ("audit=info,warn".into(), "off".into())
        );
    }

    #[test]
    fn a_json_line_is_an_object_whatever_its_values() {
        let hostile = "\"\\\n\u{1}\u{7f}é\u{2028}";
        let (log, path) = log();
        let subscriber = tracing_subscriber::fmt().event_format(json_format()).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(text = hostile, shown = %hostile, none = None::<u64>, number = 7_u64, below = -7_i64,
                nan = f64::NAN, half = 0.5, truth = true, "it \"says\" {}", 1);
            tracing::info!(target: "elsewhere", "next");
        });
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
    fn a_panic_is_reported_without_its_message() {
        let former = std::panic::take_hook();
        let (log, path) = log();
        let subscriber = tracing_subscriber::fmt().event_format(json_format()).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, || {
            report_panics();
            std::panic::catch_unwind(|| panic!("the inside")).unwrap_err();
        });
        std::panic::set_hook(former);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("\"location\":\"src/telemetry.rs:"), "{text}");
        assert!(!text.contains("the inside"), "{text}");
    }

    #[test]
    fn auto_is_human_on_a_terminal_and_json_elsewhere() {
        assert!(!is_json(LogFormat::Auto, true));
        assert!(is_json(LogFormat::Auto, false));
        assert!(!is_json(LogFormat::Human, false));
        assert!(is_json(LogFormat::Json, true));
    }
}
