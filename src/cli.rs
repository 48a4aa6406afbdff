//! The command line: definitions and parsing. `main` runs the commands.

mod arguments;
pub mod bench;
pub mod client;
pub mod health;
pub mod help;
pub mod kubeconfig;
pub mod offline;
pub mod reflect;
pub mod settings;
pub mod shell;
pub mod token;

use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Flags;

/// What `--version` says. A release also names its commit and its target: scripts/release.sh sets the variable.
const VERSION: &str = match option_env!("DELTAQ_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// Keyed, event-sourced queues over plain HTTP.
#[derive(Debug, Clone, Parser)]
#[command(name = "deltaq", version = VERSION, propagate_version = true, after_help = client::EXIT_CODES)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// A command of `deltaq`.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    /// Run the server.
    Serve(Serve),
    /// The commands that call a server.
    #[command(flatten)]
    Client(client::Client),
    /// Keep queues in step with sources: REST APIs, commands, files, SQL, other queues, Kubernetes.
    #[command(
        after_help = "Example:\n  deltaq reflect prices --source erp --list https://erp.example/prices --items /data"
    )]
    Reflect(Box<reflect::Reflect>),
    /// Check whether a server is ready; the exit code is 0 only if it is.
    Health(health::Health),
    /// Print a kubeconfig, with which kubectl and other clients of Kubernetes reach the queues that are resources.
    #[command(
        after_help = "Example:\n  deltaq kubeconfig > deltaq.kubeconfig\n  kubectl --kubeconfig deltaq.kubeconfig get prices"
    )]
    Kubeconfig(kubeconfig::Kubeconfig),
    /// Measure the throughput and latency of a server.
    Bench(bench::Bench),
    /// Create, list, revoke or rotate tokens for clients of a server.
    Token(token::Tokens),
    /// Check or show the settings of a server.
    #[command(subcommand)]
    Config(settings::Config),
    /// Find all damage in a store without changing it.
    Check(offline::Check),
    /// Copy a store to a file, even while a server runs.
    Backup(offline::Backup),
    /// Export a stopped store, the known objects of one of its queues, or the settings of all queues of a server.
    Export(offline::Export),
    /// Import an exported store into an empty directory or database, or known objects into a queue of a stopped store.
    Import(offline::Import),
    /// Print a completion script for a shell.
    #[command(
        after_help = "Example:\n  deltaq completion bash > ~/.local/share/bash-completion/completions/deltaq"
    )]
    Completion(shell::Completion),
    /// Print the manual page.
    #[command(after_help = "Example:\n  deltaq man --dir /usr/local/share/man/man1")]
    Man(shell::Man),
}

/// `deltaq serve`.
#[derive(Debug, Clone, Default, Args)]
pub struct Serve {
    /// Settings file; config/deltaq.toml lists all settings.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CONFIG")]
    pub config: Option<PathBuf>,
    /// The settings that have a flag.
    #[command(flatten)]
    pub flags: Flags,
    /// File to write when the server is ready: the addresses of its listeners, as JSON.
    #[arg(long, value_name = "FILE")]
    pub ready_file: Option<PathBuf>,
}

/// Prints text to stdout. If the reader, such as `head`, closes the pipe, this is not an error.
///
/// # Errors
/// Stdout can't be written.
pub fn print(text: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::config::{LogFormat, LogLevel};

    #[test]
    fn the_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_become_settings() {
        let line = "deltaq serve --listen 127.0.0.1:0 --metrics-listen= --in-memory --node-name a \
                    --advertise http://a:7070 --log-format json --log-level debug";
        let Command::Serve(serve) = Cli::try_parse_from(line.split(' ')).unwrap().command else {
            panic!("not serve")
        };
        let expected = Flags {
            listen: Some("127.0.0.1:0".to_owned()),
            metrics_listen: Some(String::new()),
            data_dir: None,
            store: None,
            node_name: Some("a".to_owned()),
            advertise: Some("http://a:7070".to_owned()),
            in_memory: true,
            insecure: false,
            log_format: Some(LogFormat::Json),
            log_level: Some(LogLevel::Debug),
        };
        assert_eq!(serve.flags, expected);
    }

    #[test]
    fn the_places_of_a_journal_exclude_each_other() {
        for places in [
            "--data-dir x --in-memory",
            "--data-dir x --store postgres://a@h/q",
            "--in-memory --store postgres://a@h/q",
        ] {
            let line = format!("deltaq serve {places}");
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict, "{places}");
        }
    }
}
