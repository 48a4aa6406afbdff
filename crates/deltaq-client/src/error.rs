//! Errors.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use deltaq_types::ProblemDocument;

/// An error of another library, or of the application.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request has no usable reply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the server is not a URL of the form `http://host:port`.
    #[error("{}; write it like http://127.0.0.1:7070", invalid(address))]
    Address {
        /// The given address.
        address: String,
    },
    /// The name of a queue or an index can't be part of a path, because it is empty, `.` or `..`, or contains such a
    /// part between slashes. Nothing was sent.
    #[error("{}", no_name(segment))]
    Segment {
        /// The name.
        segment: String,
    },
    /// The token contains characters that a header can't contain.
    #[error("the token has characters that no token has; check for line breaks in its file")]
    Token,
    /// The file with the token can't be read, or is empty.
    #[error("can't read the token file {}", path.display())]
    TokenFile {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The [`TokenSource`](crate::TokenSource) has no token. Nothing was sent.
    #[error("there is no token")]
    TokenSource {
        /// The error of the source.
        source: BoxError,
    },
    /// The PEM text with the certificates of authorities contains no certificate.
    #[error("the certificates of authorities (PEM) have no certificate")]
    NoAuthority,
    /// A certificate or key is not valid PEM, or the TLS client can't be set up.
    #[error("can't set up TLS")]
    Tls {
        /// The error of the HTTP client.
        source: BoxError,
    },
    /// There is no connection to the server.
    #[error("can't connect to {address}")]
    Connect {
        /// The address of the server.
        address: String,
        /// The error of the HTTP client.
        source: BoxError,
    },
    /// The connection broke, or the reply did not come in time. The request may have taken effect.
    #[error("no reply from {address}; the request may have taken effect")]
    NoReply {
        /// The address of the server.
        address: String,
        /// The error of the HTTP client.
        source: BoxError,
    },
    /// A watch was silent for too long, or the server was silent for too long after it had received a request.
    #[error("nothing came from {address} for {silence:?}; a request may have taken effect")]
    Silence {
        /// The address of the server.
        address: String,
        /// How long the connection was silent.
        silence: Duration,
    },
    /// The server refused the request.
    #[error("{}{} ({}, {})", .0.detail, hinted(.0), .0.status, .0.code)]
    Problem(Box<ProblemDocument>),
    /// The reply is not from a deltaq server.
    #[error("{address} answered with status {status} and no problem document; is it a deltaq server?")]
    NotDeltaq {
        /// The address of the server.
        address: String,
        /// The status of the reply.
        status: u16,
        /// How long the reply asks to wait.
        retry_after: Option<Duration>,
    },
    /// The reply is not the expected document.
    #[error("the reply is not the expected document")]
    Reply {
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
    /// An object can't be sent: it can't be written as JSON, such as one with NaN, or there is none. Nothing was sent.
    #[error("an object can't be sent")]
    Object {
        /// The error of the JSON writer.
        source: serde_json::Error,
    },
    /// The operating system did not provide random bytes for the id of a pop.
    #[error("can't get random bytes from the operating system")]
    Random {
        /// The error of the operating system.
        source: getrandom::Error,
    },
    /// The server had already applied the sequence number of a new call: another producer also uses the numbers of
    /// this source.
    #[error(
        "queue {queue} had applied number {sequence} of source {source_name:?}: another producer counts for this source"
    )]
    SequenceTaken {
        /// The queue.
        queue: String,
        /// The source.
        source_name: String,
        /// The number of the call.
        sequence: u64,
    },
    /// The queue has lost changes that were sent, because it was restored from a backup or its database has lost
    /// changes. The error is also returned if the token does not permit checking this.
    #[error(
        "queue {queue} may have lost what was sent, as after a backup was restored; send the whole list again"
    )]
    QueueRestored {
        /// The queue.
        queue: String,
    },
    /// The queue was deleted, even if there is a new queue of the same name.
    #[error("queue {queue} was deleted; send the whole list again")]
    QueueDeleted {
        /// The queue.
        queue: String,
    },
}

fn invalid(address: &str) -> String {
    if address.is_empty() {
        return "the address of the server is empty".to_owned();
    }
    format!("invalid server address {address:?}")
}

fn no_name(segment: &str) -> String {
    if segment.is_empty() {
        return "not sent: the empty text is no name, such as that of a queue".to_owned();
    }
    format!("{segment:?} is no name: a path can't have it as a part")
}

/// Whether an error is one of TLS, such as a certificate that is not trusted, or a server without TLS.
fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // The source of such an error leaves out the error inside.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if error.is::<rustls::Error>() || inner.is_some_and(|inner| is_tls(inner)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The hint, as it follows the detail.
fn hinted(problem: &ProblemDocument) -> String {
    problem.hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"))
}

impl Error {
    /// The problem document, if the server sent one.
    #[must_use]
    pub fn problem(&self) -> Option<&ProblemDocument> {
        match self {
            Self::Problem(problem) => Some(problem),
            _ => None,
        }
    }

    /// The code of the problem document.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }

    /// Whether the server has refused the token, or a proxy in front of it has.
    pub(crate) fn is_unauthorized(&self) -> bool {
        match self {
            Self::Problem(problem) => problem.status == 401,
            Self::NotDeltaq { status, .. } => *status == 401,
            _ => false,
        }
    }

    /// Whether nothing was done, for a reason that another server need not have.
    pub(crate) fn is_undone_here(&self) -> bool {
        const CODES: [&str; 4] = ["draining", "host-not-allowed", "too-many-connections", "unauthorized"];
        match self {
            Self::Connect { .. } => true,
            Self::Problem(problem) => CODES.contains(&problem.code.as_str()),
            Self::NotDeltaq { status, .. } => (300..500).contains(status) && !self.is_retryable(),
            _ => false,
        }
    }

    /// Whether another server may do better.
    pub(crate) fn is_of_server(&self) -> bool {
        let is_unavailable = match self {
            Self::NoReply { .. } | Self::Silence { .. } => true,
            Self::Problem(problem) => matches!(problem.status, 502..=504),
            Self::NotDeltaq { status, .. } => matches!(status, 502..=504),
            _ => false,
        };
        is_unavailable || self.is_undone_here()
    }

    /// Whether the same request may succeed later. The outcome of the failed request may be
    /// [unknown](Self::is_outcome_unknown).
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            // A certificate that is not trusted now is not trusted in a minute.
            Self::Connect { source, .. } => !is_tls(source.as_ref()),
            Self::NoReply { .. } | Self::Silence { .. } => true,
            Self::Problem(problem) => problem.retryable,
            // The reply of a proxy in front of the server.
            Self::NotDeltaq { status, .. } => matches!(status, 408 | 429 | 502..=504),
            _ => false,
        }
    }

    /// Whether a loop that runs forever, such as a worker's, should continue after this error: after retryable
    /// errors, after certificates that are not trusted, and after faults of the server or of a proxy.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.is_retryable()
            || match self {
                Self::Problem(problem) => problem.status >= 500,
                Self::NotDeltaq { status, .. } => *status >= 500,
                // Certificates are renewed while a loop runs.
                Self::Connect { .. } | Self::Reply { .. } | Self::TokenSource { .. } => true,
                _ => false,
            }
    }

    /// Whether the request may have taken effect.
    #[must_use]
    pub fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::NoReply { .. } | Self::Silence { .. } | Self::Reply { .. } => true,
            Self::NotDeltaq { status, .. } => *status >= 500,
            Self::Problem(problem) => {
                matches!(problem.status, 500 | 504 | 507)
                    || matches!(problem.code.as_str(), "journal-unavailable" | "not-owner")
            }
            _ => false,
        }
    }

    /// How long the server asks to wait before the request is repeated.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after_ms.map(Duration::from_millis),
            Self::NotDeltaq { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
