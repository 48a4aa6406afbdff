//! The log: what is written to stderr, how it looks, and how much of it. Nothing else of the program knows.
//!
//! Nobody waits for the log: see `gathering`.
//!
//! It is not the metrics, which have a module and a listener of their own.

mod gathering;
mod json;

use std::io::{self, IsTerminal as _};
use std::panic::Location;
use std::sync::atomic::Ordering;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use self::gathering::{DROPPED, Gathering, Writer};
pub(crate) use self::json::Json;
use crate::config::{Log, LogFormat, LogLevel};

/// The target of the lines of the audit, for what the log is asked to show.
const AUDIT_TARGET: &str = "audit";

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `RUST_LOG` is set to something that is no filter.
    #[error("RUST_LOG is {filter:?}, which is no filter such as \"info,deltaq=debug\"")]
    Filter {
        /// What it is set to.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// There is no thread to write it.
    #[error("the log's thread can't be started")]
    Thread {
        /// What the system said.
        source: io::Error,
    },
    /// The process has a log already.
    #[error("the log can't be started")]
    Start {
        /// Why.
        source: TryInitError,
    },
}

/// A log that is running. Dropping it writes what is left.
#[derive(Debug)]
pub struct Running(#[expect(dead_code, reason = "it is there to be dropped")] Writer);

/// Starts the log of the process, on stderr. `rust_log` is the value of `RUST_LOG`, which beats the level of the settings.
///
/// # Errors
///
/// A filter that can't be read, or a log that runs already.
pub fn init(log: Log, rust_log: Option<&str>) -> Result<Running, Error> {
    let terminal = io::stderr().is_terminal();
    let filter = filter(log.level, rust_log)?;
    let started = Gathering::start(io::stderr(), tell_dropped);
    let (lines, writer) = started.map_err(|source| Error::Thread { source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    // On a terminal the library's own rule for colours stands, which honours NO_COLOR.
    let started = match (is_json(log.format, terminal), terminal) {
        (true, _) => builder.event_format(Json).finish().try_init(),
        (false, true) => builder.finish().try_init(),
        (false, false) => builder.with_ansi(false).finish().try_init(),
    };
    started.map_err(|source| Error::Start { source })?;
    Ok(Running(writer))
}

/// How many lines of the log were dropped since the start, because nobody read it.
#[must_use]
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// Has panics told by the log, and not as plain text beside it. Their text is left out: it may hold a piece of an object.
pub fn tell_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(Location::to_string);
        tracing::error!(location, "a panic");
    }));
}

/// Told by the thread of the log, in the log's own format.
fn tell_dropped(lines: u64) {
    tracing::error!(lines, "lines of the log were dropped");
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
    let filter = EnvFilter::builder().parse(text).map_err(failed)?;
    if decides_on_audit(text) {
        return Ok(filter);
    }
    // How much is told of the server says nothing about who did what.
    let audit = format!("{AUDIT_TARGET}=info").parse().map_err(failed)?;
    Ok(filter.add_directive(audit))
}

/// Whether a filter says what becomes of the audit's lines: by their target, or because it is `off` and nothing else.
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

    use super::*;

    #[test]
    fn rust_log_beats_the_level() {
        let lines = lines_of("deltaq=trace");
        assert_eq!((lines.contains("a detail"), lines.contains("a stranger")), (true, false), "{lines}");
        let error = filter(LogLevel::Warn, Some("deltaq=loud")).unwrap_err();
        assert!(error.to_string().contains("deltaq=loud"), "{error}");
    }

    /// A log in a file, which can be read when it is written.
    fn log() -> (Arc<File>, tempfile::TempPath) {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().into_parts();
        (Arc::new(file), path)
    }

    /// What a filter lets through of three lines.
    fn lines_of(text: &str) -> String {
        let (log, path) = log();
        let filter = filter(LogLevel::Warn, Some(text)).unwrap();
        let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::trace!("a detail");
            tracing::info!(target: "elsewhere", "a stranger");
            tracing::info!(target: "audit", "a call");
        });
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_audit_passes_whatever_does_not_name_it() {
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
    fn a_panic_is_told_by_its_place_alone() {
        let former = std::panic::take_hook();
        let (log, path) = log();
        let subscriber = tracing_subscriber::fmt().event_format(Json).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, || {
            tell_panics();
            std::panic::catch_unwind(|| panic!("the inside")).unwrap_err();
        });
        std::panic::set_hook(former);
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("\"location\":\"src/telemetry.rs:"), "{text}");
        assert!(!text.contains("the inside"), "{text}");
    }

    #[test]
    fn auto_is_for_eyes_on_a_terminal_only() {
        assert!(!is_json(LogFormat::Auto, true));
        assert!(is_json(LogFormat::Auto, false));
        assert!(!is_json(LogFormat::Human, false));
        assert!(is_json(LogFormat::Json, true));
    }
}
