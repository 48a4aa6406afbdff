//! A command with its connection and its output.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use deltaq_client::{Call, Client, Method};
use deltaq_runtime::clock::Clock;
use deltaq_types::Info;
use deltaq_types::duration::DurationText;
use deltaq_types::name::Name;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::connection::Connection;
use super::failure::Failure;
use super::output::{Format, Output};
use super::reply::parse;
use crate::http;

/// Maximum wait of one call, unless the server allows less.
const CALL_WAIT_MAX: Duration = Duration::from_secs(20);

/// A command that calls a server.
pub(super) trait Execute: Args {
    /// The ids of the operations that the command calls.
    const OPERATIONS: &'static [&'static str];

    /// Runs the command.
    fn execute(&self, session: &Session) -> impl Future<Output = Result<(), Failure>>;
}

/// The arguments of a command, and the options that all commands have.
#[derive(Debug, Clone, Args)]
pub struct Remote<C: Args> {
    /// The arguments of the command.
    #[command(flatten)]
    pub command: C,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub output: Format,
    /// The server.
    #[command(flatten)]
    pub connection: Connection,
}

/// The context of a running command.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) output: Output,
    pub(super) clock: Clock,
    /// The operations of the command.
    operations: &'static [&'static str],
}

/// A wait for the server. A long wait is split into several calls.
pub(super) struct LongWait<'s> {
    clock: &'s Clock,
    started_us: u64,
    /// The wait; `None` waits forever.
    wait: Option<Duration>,
    /// Maximum wait of one call.
    longest: Duration,
}

/// Runs a command. Failures are printed.
pub(super) fn run<C: Execute>(remote: &Remote<C>) -> ExitCode {
    match try_run(remote) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn try_run<C: Execute>(remote: &Remote<C>) -> Result<(), Failure> {
    let session = Session {
        client: remote.connection.client()?,
        output: Output::new(remote.output),
        clock: Clock::system(),
        operations: C::OPERATIONS,
    };
    block_on(Box::pin(remote.command.execute(&session)))
}

/// Runs the future of a command. All commands have the same type here, so the runtime code is compiled only once.
fn block_on(command: Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Other(format!("can't start: {error}")))?;
    let done = runtime.block_on(command);
    // A blocking thread may still wait for a child or for input.
    runtime.shutdown_background();
    done
}

impl Session {
    /// Creates a call of the operation with this id. `queue` and `name` are substituted into its path.
    pub(super) fn call(&self, id: &str, queue: &str, name: &str) -> Result<Call, Failure> {
        debug_assert!(self.operations.contains(&id), "{id} is not among the operations of the command");
        call(id, queue, name)
    }

    /// A call of an operation on a queue.
    pub(super) fn on_queue(&self, id: &str, queue: &Name) -> Result<Call, Failure> {
        self.call(id, queue.as_str(), "")
    }

    /// Maximum wait of one call: the usual limit, or the server's limit if it is shorter.
    pub(super) async fn longest_wait(&self) -> Result<Duration, Failure> {
        let info: Info = self.client.fetch(call("get_info", "", "")?).await?;
        Ok(Duration::from_millis(info.limits.wait_ms).min(CALL_WAIT_MAX))
    }

    /// Starts to wait. `None` waits forever.
    pub(super) async fn wait(&self, wait: Option<Duration>) -> Result<LongWait<'_>, Failure> {
        let longest = if wait == Some(Duration::ZERO) { Duration::ZERO } else { self.longest_wait().await? };
        Ok(LongWait { clock: &self.clock, started_us: self.clock.monotonic_us(), wait, longest })
    }

    /// Sends a call and returns the document of the reply with its text.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: Call) -> Result<(T, Box<RawValue>), Failure> {
        let text: Box<RawValue> = self.client.fetch(call).await?;
        Ok((parse(&text)?, text))
    }
}

impl LongWait<'_> {
    /// The wait of the next call.
    pub(super) fn next(&self) -> DurationText {
        let took = self.clock.since(self.started_us);
        let left = self.wait.map_or(self.longest, |wait| wait.saturating_sub(took).min(self.longest));
        DurationText::from_us(u64::try_from(left.as_micros()).unwrap_or(u64::MAX))
    }

    /// Whether the whole time has passed.
    pub(super) fn is_over(&self) -> bool {
        self.wait.is_some_and(|wait| self.clock.since(self.started_us) >= wait)
    }
}

/// A call of the operation with this id.
fn call(id: &str, queue: &str, name: &str) -> Result<Call, Failure> {
    let unknown = || Failure::Other(format!("the API has no operation {id:?}"));
    let (method, path) = http::operation(id).ok_or_else(unknown)?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| unknown())?;
    let segments = path.split('/').skip(1).map(|segment| match segment {
        "{queue}" => queue,
        "{name}" | "{number}" | "{source}" => name,
        fixed => fixed,
    });
    Ok(Call::new(method, segments))
}
