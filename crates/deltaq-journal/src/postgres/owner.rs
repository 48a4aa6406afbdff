//! Ownership: a process that has joined the nodes, and its right to write to a partition.

use std::time::Duration;

use crate::store::Epoch;

/// How long after a node's last heartbeat other nodes can claim its partitions.
pub const TTL: Duration = Duration::from_secs(10);

/// A process that has joined the nodes.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name of the node.
    pub name: String,
    /// The random number of the process.
    pub instance: i64,
}

/// What a node reports with a heartbeat.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Whether it is stopping.
    pub is_leaving: bool,
    /// Whether it takes partitions.
    pub has_joined: bool,
    /// The instances of the nodes that it has called.
    pub reached: Vec<i64>,
    /// The salted digests of the secrets that it accepts.
    pub secrets: Vec<String>,
    /// The number of its queues.
    pub queues: u64,
    /// Its wall clock, in microseconds since the Unix epoch.
    pub wall_us: u64,
    /// Whether it owns a partition that it has loaded.
    pub has_loaded: bool,
    /// The partitions that it has failed to load lately.
    pub unloadable: Vec<i16>,
    /// The partitions that it gives up, if it has claimed them, because it has failed to load them.
    pub given_up: Vec<i16>,
}

/// The right of a writer to a partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    /// The random number of the writer.
    pub(super) writer: i64,
    /// The writer's epoch.
    pub(super) epoch: Epoch,
    /// The server on which the epoch began, identified by its start time in microseconds. A pooler may later route
    /// the same connection to another server, which may lack acknowledged commits. Two servers are assumed not to
    /// start in the same microsecond. After a restart of the same server, the first commit is repeated.
    pub(super) server: i64,
    /// The epoch and the writer before this writer opened the partition.
    pub(super) before: (Epoch, i64),
}
