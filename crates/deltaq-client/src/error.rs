//! Errors.

use std::time::Duration;

use deltaq_types::ProblemDocument;

/// Why a request has no usable reply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the server is not a URL of the form `http://host:port`.
    #[error("invalid server address {address:?}; write it like http://127.0.0.1:7070")]
    Address {
        /// The given address.
        address: String,
    },
    /// The token has characters that a header can't carry.
    #[error("the token has characters that no token has; check for line breaks in its file")]
    Token,
    /// The certificates of authorities are an empty list.
    #[error("the certificates of authorities (PEM) have no certificate")]
    NoAuthority,
    /// A certificate or key is not valid PEM, or the TLS client can't be set up.
    #[error("can't set up TLS")]
    Tls {
        /// The error of the HTTP client.
        source: reqwest::Error,
    },
    /// No connection to the server.
    #[error("can't connect to {address}")]
    Connect {
        /// The address of the server.
        address: String,
        /// The error of the HTTP client.
        source: reqwest::Error,
    },
    /// The connection broke, or the reply did not come in time. The request may have taken effect.
    #[error("no reply from {address}; the request may have taken effect")]
    NoReply {
        /// The address of the server.
        address: String,
        /// The error of the HTTP client.
        source: reqwest::Error,
    },
    /// The server refused the request.
    #[error("{} ({}, {})", .0.detail, .0.status, .0.code)]
    Problem(Box<ProblemDocument>),
    /// The reply is not of a deltaq server.
    #[error("{address} answered with status {status} and no problem document; is it a deltaq server?")]
    NotDeltaq {
        /// The address of the server.
        address: String,
        /// The status of the reply.
        status: u16,
    },
    /// The reply is not the expected document.
    #[error("the reply is not the expected document")]
    Reply {
        /// The error of the JSON parser.
        source: serde_json::Error,
    },
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

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::NoReply { .. } => true,
            Self::Problem(problem) => problem.retryable,
            Self::Address { .. }
            | Self::Token
            | Self::NoAuthority
            | Self::Tls { .. }
            | Self::NotDeltaq { .. }
            | Self::Reply { .. } => false,
        }
    }

    /// How long the server asks to wait before the request is repeated.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.problem().and_then(|problem| problem.retry_after_ms).map(Duration::from_millis)
    }
}
