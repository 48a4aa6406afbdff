//! The commands that call a server. Each command is thin: it reads its input, makes calls using the ids from the
//! table of operations, and prints the replies.
//!
//! Exit codes are in `failure.rs`.

mod apply;
mod confirm;
mod connection;
mod consume;
mod everywhere;
mod failure;
mod hook;
mod indexes;
mod input;
mod left_out;
mod output;
mod pages;
mod patience;
mod produce;
mod progress;
mod push;
mod queues;
mod read;
mod replace;
mod reply;
mod series;
mod session;
mod status;
mod stderr;
mod top;
mod waiting;
mod watch;
mod work;

use std::process::ExitCode;

use clap::Subcommand;

pub use self::connection::Connection;
pub(super) use self::failure::{EXIT_CODES, Failure};
pub(super) use self::queues::print_settings;
pub(super) use self::queues::settings as setting;
pub use self::session::Remote;

/// Declares a set of commands. The arguments of each command are the fields of its type.
macro_rules! commands {
    ($(#[doc = $about:literal])* $set:ident { $($(#[doc = $doc:literal])* $(#[command($($attribute:tt)*)])? $name:ident($arguments:ty),)* }) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, clap::Subcommand)]
        pub enum $set {
            $($(#[doc = $doc])* $(#[command($($attribute)*)])? $name($crate::cli::client::Remote<$arguments>),)*
        }

        impl $set {
            /// The operations of the API that the commands call.
            #[cfg(test)]
            pub(super) const OPERATIONS: &[&[&str]] =
                &[$(<$arguments as $crate::cli::client::session::Execute>::OPERATIONS),*];

            /// Runs the command.
            pub(super) fn run(&self) -> std::process::ExitCode {
                match self {
                    $(Self::$name(command) => $crate::cli::client::session::run(command),)*
                }
            }
        }
    };
}
use commands;

/// A command that calls a server.
#[derive(Debug, Clone, Subcommand)]
pub enum Client {
    /// Queues.
    #[command(flatten)]
    Queues(queues::Commands),
    /// Producers.
    #[command(flatten)]
    Produce(produce::Commands),
    /// Workers.
    #[command(flatten)]
    Consume(consume::Commands),
    /// Reads.
    #[command(flatten)]
    Read(read::Commands),
    /// Reads of all queues.
    #[command(flatten)]
    Everywhere(everywhere::Commands),
    /// Waiting.
    #[command(flatten)]
    Waiting(waiting::Commands),
    /// The state of queues.
    #[command(flatten)]
    Status(status::Commands),
    /// The changes of keys.
    #[command(flatten)]
    Watch(watch::Commands),
}

impl Client {
    /// Runs the command.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        match self {
            Self::Queues(command) => command.run(),
            Self::Produce(command) => command.run(),
            Self::Consume(command) => command.run(),
            Self::Read(command) => command.run(),
            Self::Everywhere(command) => command.run(),
            Self::Waiting(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Watch(command) => command.run(),
        }
    }
}

#[cfg(test)]
mod tests;
