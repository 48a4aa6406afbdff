//! The log: what is written to stderr, how it looks, and how much of it. Nothing else of the program knows.
//!
//! Nobody waits for the log: see `gathering`.
//!
//! It is not the metrics, which have a module and a listener of their own.

mod gathering;

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

use self::gathering::{Gathering, Writer};
use crate::config::{Log, LogFormat, LogLevel};

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
    let (lines, writer) = Gathering::start(io::stderr()).map_err(|source| Error::Thread { source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines);
    // On a terminal the library's own rule for colours stands, which honours NO_COLOR.
    let started = match (is_json(log.format, terminal), terminal) {
        (true, _) => builder.json().flatten_event(true).with_span_list(false).finish().try_init(),
        (false, true) => builder.finish().try_init(),
        (false, false) => builder.with_ansi(false).finish().try_init(),
    };
    started.map_err(|source| Error::Start { source })?;
    Ok(Running(writer))
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
    EnvFilter::builder().parse(text).map_err(|source| Error::Filter { filter: text.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_beats_the_level() {
        assert_eq!(filter(LogLevel::Warn, None).unwrap().to_string(), "warn");
        assert_eq!(filter(LogLevel::Off, None).unwrap().to_string(), "off");
        assert_eq!(filter(LogLevel::Warn, Some("deltaq=trace")).unwrap().to_string(), "deltaq=trace");
        let error = filter(LogLevel::Warn, Some("deltaq=loud")).unwrap_err();
        assert!(error.to_string().contains("deltaq=loud"), "{error}");
    }

    #[test]
    fn auto_is_for_eyes_on_a_terminal_only() {
        assert!(!is_json(LogFormat::Auto, true));
        assert!(is_json(LogFormat::Auto, false));
        assert!(!is_json(LogFormat::Human, false));
        assert!(is_json(LogFormat::Json, true));
    }
}
