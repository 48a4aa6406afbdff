//! The `deltaq` binary.

use std::process::ExitCode;

use clap::Parser;
use deltaq::cli::{Cli, Command, Serve, health};
use deltaq::lifecycle::Shutdown;
use deltaq::server::Server;
use deltaq::{config, telemetry};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => run(&serve),
        Command::Health(asked) => health::check(&asked.url).map_err(Failure::from),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("deltaq: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(serve: &Serve) -> Result<(), Failure> {
    let settings = config::load(serve.config.as_deref(), config::variables(), &serve.flags())?;
    settings.require_in_memory()?;
    telemetry::init(settings.log, config::rust_log().as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals(settings.server.shutdown_timeout.get())?;
        let server = Server::start(&settings, shutdown).await?;
        if let Some(path) = &serve.ready_file {
            server.write_ready_file(path)?;
        }
        server.run().await;
        Ok(())
    })
}

/// An error and what caused it, on one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
