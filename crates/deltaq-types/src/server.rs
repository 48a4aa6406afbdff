//! The server itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Durability, GrantVerb, NodeStatus, StoreKind, Timestamp};

/// The server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// Always `deltaq`.
    pub name: String,
    /// The version of the server.
    pub version: String,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// Where changes are stored.
    pub store: InfoStore,
    /// This server as one of several nodes; null for a single server.
    #[schema(required = true)]
    pub node: Option<InfoNode>,
    /// How long the process has run, in milliseconds.
    pub uptime_ms: u64,
    /// The memory that the process may use, in bytes, from which the server derives limits that no setting names; null if
    /// the system does not tell.
    #[schema(required = true)]
    pub memory_bytes: Option<u64>,
    /// The token of the call and what it permits; null on a server without tokens.
    #[schema(required = true)]
    pub caller: Option<InfoCaller>,
    /// The pages that the console links to.
    #[serde(default)]
    #[schema(required = true)]
    pub links: InfoLinks,
    /// The limits of requests.
    pub limits: InfoLimits,
}

/// The pages that the console links to; null without the setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InfoLinks {
    /// A dashboard. `{queue}` stands for the name of a queue.
    #[schema(required = true)]
    pub grafana: Option<String>,
    /// The folder of the documents.
    #[schema(required = true)]
    pub docs: Option<String>,
}

/// A token and what it permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InfoCaller {
    /// The name of the token.
    pub name: String,
    /// When the token expires; null if it never expires.
    #[schema(required = true)]
    pub expires_at: Option<Timestamp>,
    /// What the token permits.
    pub grants: Vec<InfoGrant>,
}

/// Verbs that are permitted on some queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InfoGrant {
    /// What is permitted.
    pub verbs: Vec<GrantVerb>,
    /// Names of queues, in which `*` matches any text.
    pub queues: Vec<String>,
    /// The sources in whose name the token may produce, in which `*` matches any text; empty if it may produce in any name and
    /// without one.
    pub sources: Vec<String>,
}

/// Where changes are stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InfoStore {
    /// The kind of the store.
    pub kind: StoreKind,
    /// PostgreSQL: whether a standby has a change before it is acknowledged, so that the change survives a failover; null for other stores.
    #[schema(required = true)]
    pub replicated: Option<bool>,
}

/// One of several nodes that share a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InfoNode {
    /// The name of the node.
    pub name: String,
    /// The number of partitions of the database.
    pub partitions: u64,
    /// The numbers of the partitions that the node currently owns.
    pub owned: Vec<u64>,
}

/// The nodes that share a database, as of the last heartbeat of the node that replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// The nodes, by name; empty for a single server.
    pub nodes: Vec<NodeDocument>,
    /// The number of partitions of the database.
    pub partitions: u64,
    /// The number of partitions that no node owns.
    pub without_owner: u64,
    /// The process that replies.
    pub this: NodeDetails,
}

/// What a node knows of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDetails {
    /// The version of the server.
    pub version: String,
    /// The kind of the store.
    pub store: StoreKind,
    /// What an acknowledged change survives.
    pub durability: Durability,
    /// How long the process has run, in milliseconds.
    pub uptime_ms: u64,
    /// The number of its queues.
    pub queues: u64,
    /// The partitions that it owns, by number.
    pub owned: Vec<OwnedPartition>,
    /// The free bytes of the file system with the data directory; null with PostgreSQL and without a store.
    #[serde(default)]
    #[schema(required = true)]
    pub disk_free_bytes: Option<u64>,
}

/// A partition that a node owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnedPartition {
    /// The number of the partition.
    pub partition: u64,
    /// The epoch of its writer, which increases each time the partition is opened; null without a store.
    #[schema(required = true)]
    pub epoch: Option<u64>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDocument {
    /// The name of the node.
    pub name: String,
    /// The URL at which the other nodes reach it.
    pub url: String,
    /// Whether it is the node that replies.
    pub this: bool,
    /// What the node does.
    pub state: NodeStatus,
    /// The number of partitions that it owns.
    pub partitions: u64,
    /// The number of queues that it owns.
    pub queues: u64,
    /// The time since its last heartbeat, in milliseconds.
    pub heartbeat_age_ms: u64,
    /// How far its wall clock is ahead of the clock of the database, in milliseconds; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// What the node says of itself; null if it has not replied.
    #[serde(default)]
    #[schema(required = true)]
    pub details: Option<NodeDetails>,
}

/// The limits of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InfoLimits {
    /// Maximum length of a key, in bytes.
    pub key_bytes: u64,
    /// Maximum nesting depth of an object.
    pub json_depth: u64,
    /// Maximum number of keys in one pop.
    pub pop_max: u64,
    /// Maximum wait of a call, in milliseconds.
    pub wait_ms: u64,
    /// Maximum length of a lease, in milliseconds.
    pub lease_ms: u64,
    /// Maximum number of entries in a page.
    pub list_page: u64,
    /// Maximum number of objects in one produce call.
    pub batch: u64,
    /// Maximum number of objects in one Replace or seed.
    pub replace_objects: u64,
    /// Maximum size of a body that is not NDJSON, in bytes.
    pub body_bytes: u64,
    /// Maximum bytes of objects in one reply to a pop.
    pub reply_bytes: u64,
    /// Maximum bytes of all bodies in memory.
    pub body_bytes_in_flight: u64,
    /// Maximum bytes of all replies in memory that clients have not read yet.
    pub reply_bytes_in_flight: u64,
    /// Maximum bytes of the changes that wait to be committed.
    pub uncommitted_bytes: u64,
    /// Maximum bytes that all queues take in memory (approximate).
    pub held_bytes: u64,
    /// Maximum number of queues.
    pub queues: u64,
    /// Maximum number of pops that wait at one queue.
    pub waiters: u64,
}
