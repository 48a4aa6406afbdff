//! The errors of starting and reloading a server.

use std::net::SocketAddr;
use std::path::PathBuf;

use deltaq_journal::{postgres, recovery, store};

use super::journal::Place;
use crate::http::NodeError;
use crate::http::connection::tls;
use crate::{access, audit, config, push, secrets, spans};

/// Why a start or a reload fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address can't be bound.
    #[error("can't listen on {address} ({setting}; each server of a host needs its own)")]
    Listen {
        /// The setting that names the address.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// A thread can't be started.
    #[error("can't start a thread for {purpose}")]
    Thread {
        /// The purpose of the thread.
        purpose: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The metrics can't be set up.
    #[error("can't set up the metrics")]
    Metrics {
        /// The cause.
        source: metrics_exporter_prometheus::BuildError,
    },
    /// Every client on the network could do everything.
    #[error(
        "{setting} is {address}, which is not loopback, and there are no tokens: every client that reaches it could do everything. \
         Set tokens (access.tokens_file), listen on 127.0.0.1, or pass --insecure"
    )]
    Exposed {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The token file can't be read.
    #[error("can't read the tokens")]
    Tokens {
        /// The cause.
        source: config::access::Error,
    },
    /// A token can't be used.
    #[error("can't use the tokens")]
    Access {
        /// The token and the cause.
        source: access::Error,
    },
    /// The token file contains no token.
    #[error("{} contains no token, so every caller would be authorized; add one (deltaq token), or pass --insecure", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
    },
    /// A reload would remove the last token.
    #[error("no token is left, so every caller would be authorized; the previous tokens stay in force")]
    LastToken,
    /// TLS can't be set up.
    #[error("can't set up TLS")]
    Tls {
        /// The cause.
        source: tls::Error,
    },
    /// The audit log can't be written.
    #[error("can't set up the audit log")]
    Audit {
        /// The cause.
        source: audit::Error,
    },
    /// Spans can't be exported.
    #[error("can't set up spans")]
    Spans {
        /// The cause.
        source: spans::Error,
    },
    /// The section `push` can't be used.
    #[error("can't set up pushing")]
    Push {
        /// The setting and the cause.
        source: push::Error,
    },
    /// The secrets of the section `hooks` can't be used.
    #[error("can't set up webhooks")]
    Hooks {
        /// The setting and the cause.
        source: secrets::Unusable,
    },
    /// Requests with TLS can't be sent.
    #[error("can't set up pushing with TLS")]
    Connector {
        /// The cause.
        source: push::ConnectorError,
    },
    /// The server can't be a node.
    #[error("can't be one of several nodes")]
    Node {
        /// The cause.
        source: NodeError,
    },
    /// The handler of SIGHUP can't be installed.
    #[error("can't listen for SIGHUP")]
    Signal {
        /// The cause.
        source: std::io::Error,
    },
    /// The default settings of queues are invalid.
    #[error("the settings in queue_defaults are invalid: {0}")]
    Defaults(deltaq_engine::config::Invalid),
    /// The location of the journal can't be used.
    #[error("can't use the {place}")]
    Store {
        /// The data directory or the database.
        place: Place,
        /// The cause.
        source: store::Error,
    },
    /// The setting that names the database is wrong.
    #[error("invalid setting `storage.store`")]
    Database {
        /// The cause.
        source: postgres::InvalidUrl,
    },
    /// The queues can't be loaded.
    #[error("can't load the queues of {}", place.name())]
    Recovery {
        /// The data directory or the database.
        place: Place,
        /// The damaged row and the damage.
        source: recovery::Error,
    },
    /// The journal's writer has panicked. The log has the location.
    #[error("the journal's writer panicked; start the server again, which loads what is committed")]
    Writer,
    /// Another process has taken over the store. The log has the epochs.
    #[error("another process has taken over the store; only that process may serve its queues")]
    TakenOver,
    /// The database has lost acknowledged changes. The log names them.
    #[error(
        "the database has lost acknowledged changes; a new start loads what it has, and the numbers of lost changes are not used again"
    )]
    RolledBack,
    /// The shutdown began before all queues were loaded.
    #[error("stopped before all queues were loaded")]
    Stopped,
    /// The ready file can't be written.
    #[error("can't write the ready file {}", path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}
