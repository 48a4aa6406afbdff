//! The Kubernetes wire: unmodified clients of Kubernetes list, watch and change queues as if they were custom resources.
//!
//! A queue with the setting `kubernetes` is a resource. Its objects are the objects of the chosen view, with the members that the
//! API server of Kubernetes owns: `apiVersion`, `kind`, and in `metadata` the version, the uid and the time of creation. Every refusal is a
//! `Status`. Nothing of this is served unless the setting `kubernetes.enabled` is on.

mod accept;
mod age;
mod directory;
mod discovery;
mod list;
mod members;
mod openapi;
mod options;
mod patch;
mod resource;
mod selector;
mod table;
mod watch;
mod write;
mod written;

pub(super) use self::directory::{of_node, resolved};
pub(super) use self::discovery::{group, groups, legacy, legacy_resources, namespace, resources, version};
pub(super) use self::list::{get, list};
pub(super) use self::openapi::{v2, v3, v3_group};
pub(super) use self::watch::watch;
pub(super) use self::write::{create, delete, patch, replace};
