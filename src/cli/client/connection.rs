//! The options for reaching the server.

use std::path::{Path, PathBuf};

use clap::Args;
use deltaq_client::{Client, ClientOptions, Error, Log, RetryOptions};

use super::failure::Failure;
use crate::config;

/// The address of a server with default settings.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// The server and how to reach it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct Connection {
    /// Address of the server, or of several nodes with commas between them; without a scheme it is http [default: the variable DELTAQ_URL, or http://127.0.0.1:7070].
    #[arg(long)]
    pub url: Option<String>,
    /// File with the token [default: the variable DELTAQ_TOKEN].
    #[arg(long, value_name = "FILE", env = "DELTAQ_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// CA certificates (PEM) to trust instead of those of the system.
    #[arg(long, value_name = "FILE", env = "DELTAQ_CA_FILE", hide_env_values = true)]
    pub ca_file: Option<PathBuf>,
    /// Certificate of this client (PEM), if the server asks for one.
    #[arg(
        long,
        value_name = "FILE",
        env = "DELTAQ_CERT_FILE",
        hide_env_values = true,
        requires = "key_file"
    )]
    pub cert_file: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(
        long,
        value_name = "FILE",
        env = "DELTAQ_KEY_FILE",
        hide_env_values = true,
        requires = "cert_file"
    )]
    pub key_file: Option<PathBuf>,
}

impl Connection {
    /// The address of the server, or of the first node.
    pub(in crate::cli) fn first_url(&self) -> String {
        let urls = self.urls();
        let first = urls.split(',').next().unwrap_or_default().trim().trim_end_matches('/');
        if first.contains("://") { first.to_owned() } else { format!("http://{first}") }
    }

    fn urls(&self) -> String {
        self.url.clone().or_else(config::client_url).unwrap_or_else(|| DEFAULT_URL.to_owned())
    }

    /// Creates a client of the server without sending anything.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        self.retrying(RetryOptions::default())
    }

    /// Like [`client`](Self::client), but with these retry options.
    pub(in crate::cli) fn retrying(&self, retry: RetryOptions) -> Result<Client, Failure> {
        let identity_pem = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Some(
                [read_pem(cert, "--cert-file", "CERTIFICATE")?, read_pem(key, "--key-file", "KEY")?].concat(),
            ),
            _ => None,
        };
        let ca_pem = self.ca_file.as_deref().map(|path| read_pem(path, "--ca-file", "CERTIFICATE"));
        let mut options = ClientOptions::new(self.urls());
        options.token = config::client_token();
        options.token_file.clone_from(&self.token_file);
        options.ca_pem = ca_pem.transpose()?.map(String::into_bytes);
        options.identity_pem = identity_pem.map(String::into_bytes);
        options.user_agent = Some(concat!("deltaq/", env!("CARGO_PKG_VERSION")).to_owned());
        options.retry = retry;
        // The commands write their own errors.
        options.log = Log::none();
        Client::new(options).map_err(|error| match error {
            Error::TokenFile { path, source } => Failure::Read { name: named(&path, "--token-file"), source },
            error => error.into(),
        })
    }
}

/// Reads the file that is named by an option or its variable.
fn read(path: &Path, option: &str) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|source| Failure::Read { name: named(path, option), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A file with the option and the variable that name it.
fn named(path: &Path, option: &str) -> String {
    let variable = option.trim_start_matches('-').replace('-', "_").to_uppercase();
    format!("{} ({option} or DELTAQ_{variable})", path.display())
}

/// The text of a PEM file, which ends with a line break. It must have a block whose label ends with `label`.
fn read_pem(path: &Path, option: &str, label: &str) -> Result<String, Failure> {
    let text = read(path, option)?;
    let is_label = |line: &str| line.starts_with("-----BEGIN ") && line.ends_with(&format!("{label}-----"));
    if !text.lines().any(|line| is_label(line.trim_end())) {
        let text = format!("{} ({option}) has no PEM block \"-----BEGIN ... {label}-----\"", path.display());
        return Err(Failure::Other(text));
    }
    Ok(text + "\n")
}
