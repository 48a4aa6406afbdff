//! `deltaq kubeconfig`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::client::Connection;
use crate::config;

/// `deltaq kubeconfig`.
#[derive(Debug, Clone, Args)]
pub struct Kubeconfig {
    /// Namespace of commands that name none [default: the one named default].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The server.
    #[command(flatten)]
    pub connection: Connection,
}

impl Kubeconfig {
    /// The text of the file. The files that the options name stay where they are, so that a renewed token or certificate is used at once.
    ///
    /// # Errors
    /// One of these files does not exist, or has no token.
    pub fn text(&self) -> io::Result<String> {
        let connection = &self.connection;
        let path = |path: &Path| path.canonicalize().map_err(|error| named(path, &error));
        let absolute = |file: &Option<PathBuf>| file.as_deref().map(path).transpose();
        let mut cluster = vec![("server", json!(connection.first_url()))];
        cluster.extend(absolute(&connection.ca_file)?.map(|file| ("certificate-authority", json!(file))));
        let mut user = Vec::new();
        match absolute(&connection.token_file)? {
            // kubectl asks for a password if there is no token.
            Some(file) if std::fs::read_to_string(&file)?.trim().is_empty() => {
                return Err(io::Error::other(format!("the token file {} is empty", file.display())));
            }
            Some(file) => user.push(("tokenFile", json!(file))),
            None => user.extend(config::client_token().map(|token| ("token", json!(token)))),
        }
        user.extend(absolute(&connection.cert_file)?.map(|file| ("client-certificate", json!(file))));
        user.extend(absolute(&connection.key_file)?.map(|file| ("client-key", json!(file))));
        let mut context = vec![("cluster", json!("deltaq")), ("user", json!("deltaq"))];
        context.extend(self.namespace.iter().map(|namespace| ("namespace", json!(namespace))));
        let mut text = "apiVersion: v1\nkind: Config\ncurrent-context: deltaq\n".to_owned();
        for (list, name, members) in
            [("clusters", "cluster", cluster), ("users", "user", user), ("contexts", "context", context)]
        {
            text.extend([list, ":\n- name: deltaq\n  ", name, ":"]);
            if members.is_empty() {
                text += " {}";
            }
            for (member, value) in members {
                text.extend(["\n    ", member, ": ", &value.to_string()]);
            }
            text.push('\n');
        }
        Ok(text)
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("can't read {}: {error}", path.display()))
}
