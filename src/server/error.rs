//! Why a server does not start, or does not read its settings again.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::http::server::tls;
use crate::journal::recovery;
use crate::journal::store;
use crate::{access, audit, config, spans};

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address can't be listened on.
    #[error("can't listen on {address} ({setting})")]
    Listen {
        /// The setting that names it.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// A thread can't be started.
    #[error("can't start a thread for {purpose}")]
    Thread {
        /// What it was for.
        purpose: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The metrics can't be set up.
    #[error("can't set up the metrics")]
    Metrics {
        /// Why.
        source: metrics_exporter_prometheus::BuildError,
    },
    /// It would be open to the network.
    #[error(
        "{setting} is {address}, which is not loopback, and there are no tokens: everybody who reaches it could do everything. \
         Give tokens (access.tokens_file), listen on 127.0.0.1, or say --insecure"
    )]
    Exposed {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The file of tokens can't be read.
    #[error("can't read the tokens")]
    Tokens {
        /// Why.
        source: config::access::Error,
    },
    /// A token can't be used.
    #[error("can't use the tokens")]
    Access {
        /// Which, and why.
        source: access::Error,
    },
    /// There is a file of tokens without tokens.
    #[error("there is no token in {}, which would let everybody in; add one (deltaq token), or say --insecure", path.display())]
    NoToken {
        /// The file.
        path: PathBuf,
    },
    /// A reload would let everybody in.
    #[error("there is no token left, which would let everybody in; the ones before stay")]
    LastToken,
    /// The certificate or what belongs to it can't be used.
    #[error("can't set up TLS")]
    Tls {
        /// Why.
        source: tls::Error,
    },
    /// The audit log can't be written.
    #[error("can't set up the audit log")]
    Audit {
        /// Why.
        source: audit::Error,
    },
    /// Spans can't be sent.
    #[error("can't set up spans")]
    Spans {
        /// Why.
        source: spans::Error,
    },
    /// SIGHUP can't be listened for.
    #[error("can't listen for SIGHUP")]
    Signal {
        /// What the system said.
        source: std::io::Error,
    },
    /// The defaults of queues are refused.
    #[error("the settings in queue_defaults are refused: {0}")]
    Defaults(String),
    /// The folder of the journal can't be used.
    #[error("can't use the data directory {}", folder.display())]
    Store {
        /// The folder.
        folder: PathBuf,
        /// Why.
        source: store::Error,
    },
    /// The queues can't be loaded.
    #[error("can't load the queues of {}", folder.display())]
    Recovery {
        /// The folder.
        folder: PathBuf,
        /// Which row is wrong, and how.
        source: recovery::Error,
    },
    /// The shutdown began before all queues were loaded.
    #[error("told to stop before all queues were loaded")]
    Stopped,
    /// The ready file can't be written.
    #[error("can't write {}", path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
