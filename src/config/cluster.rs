//! The section `[cluster]`: this server as one of several nodes on a database.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Fault, Server, Storage, range};

/// The section `[cluster]`: this server as one of several nodes on a database.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The name of this node; `None` for a standalone server.
    #[serde(default, deserialize_with = "range::node_name")]
    pub node_name: Option<String>,
    /// The URL at which the other nodes reach the API of this node, without a path; port 0 is the port of the API.
    #[serde(default, deserialize_with = "range::node_url")]
    pub advertise: Option<String>,
    /// The file with the secret that all nodes share.
    #[serde(default, deserialize_with = "range::path")]
    pub secret_file: Option<PathBuf>,
    /// The file with the certificate authorities of the nodes' certificates; `None` uses those of the system.
    #[serde(default, deserialize_with = "range::path")]
    pub ca_file: Option<PathBuf>,
    /// The file with the certificate that this node presents to other nodes, followed by its chain; `None` presents
    /// no certificate.
    #[serde(default, deserialize_with = "range::path")]
    pub tls_cert: Option<PathBuf>,
    /// The file with the private key of that certificate.
    #[serde(default, deserialize_with = "range::path")]
    pub tls_key: Option<PathBuf>,
    /// The number of partitions of the database. A database that has none gets this number.
    #[serde(deserialize_with = "range::whole::<1, 1_024, _, _>")]
    pub partitions: u16,
}

impl Cluster {
    /// Checks these settings together with the location of the journal and the TLS settings of the API.
    pub(super) fn check(&self, storage: &Storage, server: &Server) -> Result<(), Fault> {
        let fault = |setting: &str, why: &str| {
            Err(Fault { setting: format!("cluster.{setting}"), is_unknown: false, why: why.to_owned() })
        };
        if self.node_name.is_none() {
            let given = [
                ("advertise", self.advertise.is_some()),
                ("secret_file", self.secret_file.is_some()),
                ("ca_file", self.ca_file.is_some()),
                ("tls_cert", self.tls_cert.is_some()),
                ("tls_key", self.tls_key.is_some()),
            ];
            let useless = given.into_iter().find(|(_, is_given)| *is_given);
            return useless
                .map_or(Ok(()), |(setting, _)| fault(setting, "cluster.node_name is required with it"));
        }
        if storage.store.is_none() {
            return fault(
                "node_name",
                "storage.store is required with it: nodes share a PostgreSQL database",
            );
        }
        let Some(url) = &self.advertise else {
            return fault("node_name", "cluster.advertise is required with it");
        };
        if self.secret_file.is_none() {
            return fault("node_name", "cluster.secret_file is required with it");
        }
        match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => return fault("tls_cert", "cluster.tls_key is required with it"),
            (None, Some(_)) => return fault("tls_key", "cluster.tls_cert is required with it"),
            _ => {}
        }
        if server.tls_cert.is_some() && url.starts_with("http:") {
            let why = "the API speaks TLS (server.tls_cert), so the URL must begin with https";
            return fault("advertise", why);
        }
        if server.tls_client_ca.is_some() && self.tls_cert.is_none() {
            let why = "server.tls_client_ca demands a certificate of every caller, so cluster.tls_cert and cluster.tls_key \
                       are required: this node shows them to the other nodes";
            return fault("node_name", why);
        }
        Ok(())
    }
}
