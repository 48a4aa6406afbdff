//! The log: what is written to stderr, how it looks, and how much of it. Nothing else of the program knows.
//!
//! Nobody waits for the log: a task writes it, and if whoever reads stderr stands still for so long that too many
//! lines wait, lines are dropped and counted.
//!
//! It is not the metrics, which have a module and a listener of their own.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};

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
    /// The process has a log already.
    #[error("the log can't be started")]
    Start {
        /// Why.
        source: TryInitError,
    },
}

/// Most lines that wait to be written.
const LINES_MAX: usize = 65_536;
/// How often it is looked whether lines were dropped.
const WATCH_PERIOD: Duration = Duration::from_secs(10);

/// A log that is running. Dropping it writes what is left.
#[derive(Debug)]
pub struct Running {
    _writer: WorkerGuard,
    dropped: ErrorCounter,
}

impl Running {
    /// Tells how many lines were dropped, until `ended`.
    pub fn watch(&self, ended: CancellationToken) -> impl Future<Output = ()> + Send + use<> {
        let dropped = self.dropped.clone();
        async move {
            let mut told = 0;
            while ended.run_until_cancelled(tokio::time::sleep(WATCH_PERIOD)).await.is_some() {
                let now = dropped.dropped_lines();
                if now > told {
                    tracing::warn!(lines = now - told, "lines of the log were dropped: stderr was not read");
                    told = now;
                }
            }
        }
    }
}

/// Starts the log of the process, on stderr. `rust_log` is the value of `RUST_LOG`, which beats the level of the settings.
///
/// # Errors
///
/// A filter that can't be read, or a log that runs already.
pub fn init(log: Log, rust_log: Option<&str>) -> Result<Running, Error> {
    let terminal = io::stderr().is_terminal();
    let filter = filter(log.level, rust_log)?;
    let (writer, guard) = NonBlockingBuilder::default().buffered_lines_limit(LINES_MAX).finish(io::stderr());
    let running = Running { dropped: writer.error_counter(), _writer: guard };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    // On a terminal the library's own rule for colours stands, which honours NO_COLOR.
    let started = match (is_json(log.format, terminal), terminal) {
        (true, _) => builder.json().flatten_event(true).with_span_list(false).finish().try_init(),
        (false, true) => builder.finish().try_init(),
        (false, false) => builder.with_ansi(false).finish().try_init(),
    };
    started.map_err(|source| Error::Start { source })?;
    Ok(running)
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
