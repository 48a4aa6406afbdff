//! The `deltaq` binary.

use std::process::ExitCode;

use clap::Parser;
use deltaq::causes::with_causes;
use deltaq::cli::{Cli, Command, Serve, health};
use deltaq::lifecycle::Shutdown;
use deltaq::server::{self, Server};
use deltaq::{config, telemetry};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(serve) => run(&serve).map(|()| ExitCode::SUCCESS),
        Command::Health(asked) => {
            health::check(&asked.url).map(|()| ExitCode::SUCCESS).map_err(Failure::from)
        }
        Command::Check(check) => check.run(),
        Command::Backup(backup) => backup.run(),
        Command::Export(export) => export.run(),
        Command::Import(import) => import.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("deltaq: {}", with_causes(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(serve: &Serve) -> Result<(), Failure> {
    let settings = config::load(serve.config.as_deref(), config::variables(), &serve.flags())?;
    telemetry::init(settings.log, config::rust_log().as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = Shutdown::on_signals(settings.server.shutdown_timeout.get())?;
        if let Some(path) = &serve.ready_file {
            // One of a former run would say too early that this one is ready. If it can't be removed,
            // neither can it be written, which is told below.
            let _absent = std::fs::remove_file(path);
        }
        let server = match Server::start(&settings, shutdown).await {
            Err(said @ server::Error::Stopped) => {
                tracing::info!("{said}");
                return Ok(());
            }
            started => started?,
        };
        if let Some(path) = &serve.ready_file {
            server.write_ready_file(path)?;
        }
        server.run().await;
        Ok(())
    })
}
