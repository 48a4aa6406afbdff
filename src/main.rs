//! The `deltaq` binary.

use std::process::ExitCode;
use std::time::Duration;

use deltaq::cli::{self, Command, Serve};
use deltaq::server::{self, PassedSockets, ReadyFile, Server};
use deltaq::{config, supervisor, telemetry};
use deltaq_runtime::causes::with_causes;
use deltaq_runtime::lifecycle::Shutdown;

// SQLite allocates values on its own thread, and deltaq frees them on another thread. For this pattern, glibc's
// allocator walks long free lists.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of open files other than connections: store, log, listeners.
const FILES_BESIDE_CONNECTIONS: u64 = 128;
/// Maximum time that the process waits for blocking threads when it ends, because a stalled disk could block a thread
/// forever.
const THREADS_END_MAX: Duration = Duration::from_secs(1);

/// The exit code of a server whose store another process has taken over. A supervisor must not start it again.
const TAKEN_OVER: u8 = 3;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let done = match cli::help::parse().command {
        Command::Serve(serve) => run(&serve).map(|()| ExitCode::SUCCESS),
        Command::Client(command) => Ok(command.run()),
        Command::Reflect(reflect) => Ok(reflect.run()),
        Command::Health(health) => health.run().map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        Command::Kubeconfig(kubeconfig) => {
            kubeconfig.text().map_err(Failure::from).and_then(|text| print(&text))
        }
        Command::Bench(bench) => bench.run().map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        Command::Token(token) => {
            token.run().map_err(Failure::from).and_then(|token| print(&format!("{token}\n")))
        }
        Command::Config(config) => config.run().and_then(|text| print(&text)),
        Command::Completion(completion) => {
            completion.run().map(|()| ExitCode::SUCCESS).map_err(Failure::from)
        }
        Command::Man(man) => man.run().map(|()| ExitCode::SUCCESS).map_err(Failure::from),
        Command::Check(check) => check.run(),
        Command::Backup(backup) => backup.run(),
        Command::Export(export) => export.run(),
        Command::Import(import) => import.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("deltaq: {}", with_causes(&*error));
            match error.downcast_ref() {
                Some(server::Error::TakenOver) => ExitCode::from(TAKEN_OVER),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn print(text: &str) -> Result<ExitCode, Failure> {
    cli::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn run(serve: &Serve) -> Result<(), Failure> {
    let sockets = PassedSockets::take()?;
    let settings =
        config::load(serve.config.as_deref(), config::variables(), &serve.flags, config::available_memory())?;
    let _log = telemetry::init(settings.log, config::rust_log().as_deref())?;
    telemetry::report_panics();
    let files = raise_file_limit(settings.server.max_connections);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let shutdown = Shutdown::on_signals(settings.server.shutdown_timeout.get())?;
        let ready_file = serve.ready_file.as_deref().map(ReadyFile::prepare).transpose()?;
        let server = match Server::start_on(&settings, shutdown, sockets).await {
            Err(stopped @ server::Error::Stopped) => {
                tracing::info!("{stopped}");
                return Ok(());
            }
            started => started?,
        };
        if let Some(file) = &ready_file {
            file.write(&server)?;
        }
        server.watch_files();
        supervisor::ready();
        match files {
            // Few servers reach the default of max_connections, so there is a warning only if the setting was
            // changed.
            Ok((limit, wanted)) if limit < wanted && !has_default_connections(&settings) => tracing::warn!(
                limit,
                wanted,
                "the limit of open files is too low for server.max_connections; raise it (ulimit -Hn, LimitNOFILE=)"
            ),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "can't raise the limit of open files"),
        }
        server.run().await?;
        Ok(())
    });
    runtime.shutdown_timeout(THREADS_END_MAX);
    done
}

fn has_default_connections(settings: &config::Settings) -> bool {
    settings.server.max_connections == config::Settings::default().server.max_connections
}

/// Raises the limit of open files: each connection is one, and the default is often far too low for long polls. Returns
/// the new limit and the wanted one.
fn raise_file_limit(connections: usize) -> std::io::Result<(u64, u64)> {
    let wanted = connections as u64 + FILES_BESIDE_CONNECTIONS;
    Ok((rlimit::increase_nofile_limit(wanted)?, wanted))
}
