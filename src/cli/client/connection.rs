//! The options that say how to reach the server.

use std::path::{Path, PathBuf};

use clap::Args;
use deltaq_client::{Client, ClientOptions};

use super::failure::Failure;
use crate::config;

/// The address of a server with default settings.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";

/// The server and how to reach it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct Connection {
    /// Address of the server; without a scheme it is http [default: the variable DELTAQ_URL, or http://127.0.0.1:7070].
    #[arg(long)]
    pub url: Option<String>,
    /// File with the token [default: the variable DELTAQ_TOKEN].
    #[arg(long, value_name = "FILE", env = "DELTAQ_TOKEN_FILE", hide_env_values = true)]
    pub token_file: Option<PathBuf>,
    /// Certificates of authorities (PEM) to trust instead of those of the system.
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
    /// A client of the server. Nothing is sent yet.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        let token = match &self.token_file {
            Some(path) => Some(String::from_utf8_lossy(&read(path)?).into_owned()),
            None => config::client_token(),
        };
        let identity_pem = match (&self.cert_file, &self.key_file) {
            (Some(cert), Some(key)) => Some([read(cert)?, b"\n".to_vec(), read(key)?].concat()),
            _ => None,
        };
        let options = ClientOptions {
            url: self.url.clone().or_else(config::client_url).unwrap_or_else(|| DEFAULT_URL.to_owned()),
            token,
            ca_pem: self.ca_file.as_deref().map(read).transpose()?,
            identity_pem,
            user_agent: Some(concat!("deltaq/", env!("CARGO_PKG_VERSION")).to_owned()),
        };
        Ok(Client::new(options)?)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|source| Failure::Read { name: path.display().to_string(), source })
}
