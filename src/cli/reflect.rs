//! `deltaq reflect`: keeps queues in step with sources, from flags or a file.

mod flags;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use deltaq_client::RetryOptions;
use deltaq_reflect::{Error, Reflectors, Summary};
use deltaq_runtime::clock::Clock;
use deltaq_runtime::lifecycle::Shutdown;

use super::client::{Connection, Failure};
use crate::config::reflect as settings;
use crate::config::{self, Log, LogFormat, LogLevel};
use crate::{supervisor, telemetry};

/// How long a call to the queue is repeated before this counts as a failure. A restart of the server takes less time.
const RETRY: RetryOptions = RetryOptions {
    first: Duration::from_millis(250),
    max: Duration::from_secs(2),
    attempts: u32::MAX,
    total: Duration::from_secs(10),
};
/// Maximum time after the first signal for sending the changes that have been read.
const STOP_MAX: Duration = Duration::from_secs(10);

/// `deltaq reflect`.
#[derive(Debug, Clone, Args)]
pub struct Reflect {
    /// The source, if there is no file.
    #[command(flatten)]
    pub flags: flags::Flags,
    /// File of many sources (TOML), instead of the arguments of one.
    #[arg(long, value_name = "FILE", conflicts_with_all = flags::OF_ONE_SOURCE)]
    pub config: Option<PathBuf>,
    /// Send one list of each source, and end; the exit code is 0 only if all lists were accepted.
    #[arg(long)]
    pub once: bool,
    /// Drop the slot of each source with --replicate, and the publication that was made with it, and end.
    #[arg(long, conflicts_with = "once")]
    pub drop_slot: bool,
    /// Address of /metrics, /livez and /readyz, such as localhost:7072 [default: none].
    #[arg(long, value_name = "ADDRESS", conflicts_with = "once")]
    pub metrics_listen: Option<String>,
    /// Format of the log [default: auto, human on a terminal, else JSON].
    #[arg(long, value_name = "FORMAT", default_value = "auto", hide_default_value = true)]
    pub log_format: LogFormat,
    /// The least severe level that is logged [default: info, or warn with --once]; `RUST_LOG` overrides it.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// The server.
    #[command(flatten)]
    pub connection: Connection,
}

impl Reflect {
    /// Runs the command. Failures are printed.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        self.try_run().unwrap_or_else(|failure| failure.report())
    }

    fn try_run(&self) -> Result<ExitCode, Failure> {
        let settings = self.settings()?;
        let reflectors = Reflectors::new(&settings, &self.connection.retrying(RETRY)?, &Clock::system());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Other(format!("can't start: {error}")))?;
        if self.drop_slot {
            return Ok(report_slots(runtime.block_on(reflectors.drop_slots())));
        }
        let level = self.log_level.unwrap_or(if self.once { LogLevel::Warn } else { LogLevel::Info });
        let log = telemetry::init(Log { format: self.log_format, level }, config::rust_log().as_deref());
        let _log = log.map_err(|error| Failure::Other(deltaq_runtime::causes::with_causes(&error)))?;
        telemetry::report_panics();
        let done = if self.once {
            Ok(report(runtime.block_on(reflectors.once())))
        } else {
            runtime.block_on(reflect(reflectors, &settings)).map(|()| ExitCode::SUCCESS)
        };
        // A blocking thread may still read a file.
        runtime.shutdown_background();
        done
    }

    fn settings(&self) -> Result<deltaq_reflect::settings::Reflect, Failure> {
        let Some(path) = &self.config else {
            return self.flags.settings(self.metrics_listen.as_deref());
        };
        if let Some(flag) = self.flags.first_given()? {
            let path = path.display();
            return Err(Failure::Usage(format!(
                "{flag} is for one source without a file; {path} has the settings of each source"
            )));
        }
        let failed = |error: settings::Error| Failure::Other(deltaq_runtime::causes::with_causes(&error));
        let mut settings = settings::load(path).map_err(failed)?;
        if let Some(address) = &self.metrics_listen {
            settings.metrics_listen = settings::listen_address(address).map_err(failed)?;
        }
        Ok(settings)
    }
}

/// Reflects until a signal.
async fn reflect(
    reflectors: Reflectors,
    settings: &deltaq_reflect::settings::Reflect,
) -> Result<(), Failure> {
    let other = |error: &dyn std::error::Error| Failure::Other(deltaq_runtime::causes::with_causes(error));
    let shutdown = Shutdown::on_signals(STOP_MAX).map_err(|error| other(&error))?;
    if let Some(address) = settings.metrics_listen {
        let bound = reflectors.metrics().listen(address, &shutdown).await;
        let bound = bound.map_err(|error| {
            Failure::Other(format!("can't listen on {address} (metrics_listen): {error}"))
        })?;
        tracing::info!(%bound, "serving /metrics, /livez and /readyz");
    }
    supervisor::ready();
    reflectors.run(&shutdown).await;
    supervisor::stopping();
    shutdown.join().await;
    Ok(())
}

/// The name of a slot, and whether there was one; `None` for a source without a slot.
type Dropped = Result<Option<(String, bool)>, Error>;

/// Prints the slots that were dropped. The exit code is that of the first failure.
fn report_slots(results: Vec<(String, Dropped)>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (name, result) in results {
        match result {
            Ok(Some((slot, true))) => println!("{name}: dropped the slot {slot}"),
            Ok(Some((slot, false))) => println!("{name}: there is no slot {slot}"),
            Ok(None) => {}
            Err(error) => {
                let what = format!("source {name}: {}", deltaq_runtime::causes::with_causes(&error));
                let failed = Failure::Other(what).report();
                code = if code == ExitCode::SUCCESS { failed } else { code };
            }
        }
    }
    code
}

/// Prints the results of one list of each source. The exit code is that of the first failure.
fn report(results: Vec<(String, Result<Summary, Error>)>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for (name, result) in results {
        let failure = match result {
            Ok(Summary::Unchanged) => {
                println!("{name}: unchanged");
                continue;
            }
            Ok(Summary::Sent { objects, counts }) => {
                let (replaced, deleted, unchanged) = (counts.replaced, counts.deleted, counts.unchanged);
                println!(
                    "{name}: {objects} objects, {replaced} replaced, {deleted} deleted, {unchanged} unchanged"
                );
                continue;
            }
            Err(Error::Queue { queue, source }) => {
                Failure::OfSource { place: format!("source {name}, queue {queue}"), source }
            }
            Err(error) => {
                Failure::Other(format!("source {name}: {}", deltaq_runtime::causes::with_causes(&error)))
            }
        };
        let failed = failure.report();
        code = if code == ExitCode::SUCCESS { failed } else { code };
    }
    code
}
