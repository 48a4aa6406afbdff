//! The section `[cluster]`: this server as one of several nodes on a database.

use std::path::PathBuf;

use serde::Deserialize;

use super::{Fault, Storage, range};

/// The section `[cluster]`: this server as one of several nodes on a database.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// The name of this node; `None` if the server is alone.
    #[serde(default, deserialize_with = "range::node_name")]
    pub node_name: Option<String>,
    /// The URL at which the other nodes reach the API of this node, without a path; port 0 is the port of the API.
    #[serde(default, deserialize_with = "range::node_url")]
    pub advertise: Option<String>,
    /// The file of the secret that all nodes share.
    #[serde(default, deserialize_with = "range::path")]
    pub secret_file: Option<PathBuf>,
    /// The file of the authorities that sign the certificates of the nodes; `None` uses those of the system.
    #[serde(default, deserialize_with = "range::path")]
    pub ca_file: Option<PathBuf>,
    /// The number of partitions of a database that has none yet.
    #[serde(deserialize_with = "range::whole::<1, 1_024, _, _>")]
    pub partitions: u16,
}

impl Cluster {
    /// The rules between these settings and the place of the journal.
    pub(super) fn check(&self, storage: &Storage) -> Result<(), Fault> {
        let fault = |setting: &str, why: &str| {
            Err(Fault { setting: format!("cluster.{setting}"), is_unknown: false, why: why.to_owned() })
        };
        if self.node_name.is_none() {
            let given = [
                ("advertise", self.advertise.is_some()),
                ("secret_file", self.secret_file.is_some()),
                ("ca_file", self.ca_file.is_some()),
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
        if self.advertise.is_none() {
            return fault("node_name", "cluster.advertise is required with it");
        }
        if self.secret_file.is_none() {
            return fault("node_name", "cluster.secret_file is required with it");
        }
        Ok(())
    }
}
