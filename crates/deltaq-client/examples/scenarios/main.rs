//! The program of `tests/clients/`: it uses this crate as an application would. Its settings are environment variables.

mod commands;
mod informer;
mod producers;
mod reader;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use deltaq_client::types::duration;
use deltaq_client::{CancellationToken, Client, ClientOptions, Queue, RetryOptions};
use tokio::signal::unix::{SignalKind, signal};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let mut text = failure.to_string();
            let mut cause = failure.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let mut term = signal(SignalKind::terminate())?;
    let stop = CancellationToken::new();
    let program = std::env::args().nth(1).unwrap_or_default();
    let work = async {
        match program.as_str() {
            "worker" => worker::run(queue()?, stop.clone()).await,
            "informer" => informer::run(queue()?, stop.clone()).await,
            "reflector" => producers::reflector(queue()?, stop.clone()).await,
            "produce" => producers::produce(queue()?, stop.clone()).await,
            "read" => reader::run(queue()?, stop.clone()).await,
            _ => Err("usage: scenarios worker|informer|reflector|produce|read".into()),
        }
    };
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = term.recv() => stop.cancel(),
        }
    }
}

fn queue() -> Result<Queue, Failure> {
    let mut options = ClientOptions::new(required("DELTAQ_URL")?);
    options.token = setting("DELTAQ_TOKEN");
    options.token_file = setting("DELTAQ_TOKEN_FILE").map(Into::into);
    if let Some(attempts) = setting("MAX_ATTEMPTS") {
        options.retry = RetryOptions { attempts: attempts.parse()?, ..options.retry };
    }
    Ok(Client::new(options)?.queue(required("DELTAQ_QUEUE")?))
}

#[expect(clippy::disallowed_methods, reason = "the environment has the settings of this program")]
fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn required(name: &str) -> Result<String, Failure> {
    setting(name).ok_or_else(|| format!("the variable {name} is missing").into())
}

fn duration_setting(name: &str) -> Result<Option<Duration>, Failure> {
    Ok(setting(name).map(|text| duration::parse(&text)).transpose()?)
}
