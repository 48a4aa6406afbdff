//! The queues of other nodes that are resources of the Kubernetes API.
//!
//! A node asks the others, and keeps their answers for a moment.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use deltaq_service::{Name, Partitions, Peer};
use deltaq_types::Kubernetes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Node, PARTITIONS};

/// The path at which a node has the resources of its queues, for other nodes.
const PATH: &str = "/v1/nodes/kubernetes";
/// How long the answers of the other nodes are used.
pub(in crate::http) const AGE_MAX: Duration = Duration::from_secs(2);
/// How long those answers are used for a resource that none of them has.
pub(in crate::http) const AGE_MAX_OF_MISS: Duration = Duration::from_millis(200);
/// How long another node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Maximum size of an answer, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A queue that is a resource.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::http) struct Entry {
    pub(in crate::http) queue: String,
    pub(in crate::http) settings: Arc<Kubernetes>,
    pub(in crate::http) is_namespaced: bool,
}

/// The resources of the other nodes.
#[derive(Debug, Default)]
pub(in crate::http) struct Resources {
    known: Mutex<Arc<Known>>,
    /// Held while the other nodes are asked.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
pub(in crate::http) struct Known {
    pub(in crate::http) entries: Vec<Entry>,
    /// Whether all partitions are covered.
    pub(in crate::http) is_complete: bool,
    asked: Option<Instant>,
}

/// The resources of this node.
pub(in crate::http) fn own(partitions: &Partitions) -> Vec<Entry> {
    let queues = partitions.kubernetes_queues().into_iter();
    let entry = |(name, settings, is_namespaced): (Name, _, _)| Entry {
        queue: name.to_string(),
        settings,
        is_namespaced,
    };
    queues.map(entry).collect()
}

impl Known {
    /// The first queue by name that is this resource.
    pub(in crate::http) fn queue(&self, group: &str, plural: &str) -> Option<Name> {
        let is_it = |entry: &&Entry| entry.settings.group == group && entry.settings.plural == plural;
        let queues = self.entries.iter().filter(is_it).map(|entry| &entry.queue);
        queues.min().and_then(|name| Name::new(name).ok())
    }
}

impl Resources {
    /// The queue of another node that is this resource, as far as the last answers show it.
    pub(in crate::http) fn last(&self, group: &str, plural: &str) -> Option<Name> {
        self.known.lock().queue(group, plural)
    }

    /// The resources of the other nodes, at most this old.
    pub(in crate::http) async fn known(
        &self,
        partitions: &Partitions,
        node: &Node,
        age_max: Duration,
    ) -> Arc<Known> {
        let fresh = || {
            let known = self.known.lock().clone();
            known.asked.is_some_and(|asked| asked.elapsed() <= age_max).then_some(known)
        };
        if let Some(known) = fresh() {
            return known;
        }
        let _only_one = self.asking.lock().await;
        if let Some(known) = fresh() {
            return known;
        }
        let mut covered = partitions.owned();
        let mut entries = Vec::new();
        let mut silent = Vec::new();
        let answers = partitions.peers().into_iter().map(|peer| async move {
            let answer = tokio::time::timeout(ANSWER_MAX, ask(node, &peer)).await;
            (peer, answer.ok().flatten())
        });
        for (peer, answer) in futures_util::future::join_all(answers).await {
            let Some((found, partitions)) = answer else {
                silent.push(peer.name.clone());
                continue;
            };
            entries.extend(found);
            covered.extend(partitions);
        }
        covered.sort_unstable();
        covered.dedup();
        let is_complete = covered.len() == partitions.count();
        let former = self.known.lock().clone();
        let was_complete = former.asked.is_none() || former.is_complete;
        if was_complete && !is_complete {
            tracing::warn!(
                nodes = silent.join(", "),
                "the Kubernetes API lacks resources: other nodes don't say what they have; a resource that they had is still served"
            );
        } else if !was_complete && is_complete {
            tracing::info!("the Kubernetes API has the resources of all nodes again");
        }
        if !is_complete {
            // A resource does not vanish because its node can't be asked.
            let is_new = |former: &&Entry| entries.iter().all(|entry| entry.queue != former.queue);
            let kept: Vec<Entry> = former.entries.iter().filter(is_new).cloned().collect();
            entries.extend(kept);
        }
        let known = Arc::new(Known { entries, is_complete, asked: Some(Instant::now()) });
        *self.known.lock() = known.clone();
        known
    }
}

/// The resources of another node, and the partitions that it owns.
async fn ask(node: &Node, peer: &Arc<Peer>) -> Option<(Vec<Entry>, Vec<usize>)> {
    let request = Request::get(PATH).body(Body::empty()).ok()?;
    let (parts, body) = node.send(peer, request).await.ok()?.into_parts();
    if parts.status != StatusCode::OK {
        return None;
    }
    let partitions = parts.headers.get(&PARTITIONS)?.to_str().ok()?;
    let partitions = partitions.split(',').filter_map(|number| number.parse().ok()).collect();
    let text = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await.ok()?;
    Some((serde_json::from_slice(&text).ok()?, partitions))
}
