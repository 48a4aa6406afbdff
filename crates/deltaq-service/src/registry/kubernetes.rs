//! Which queues are resources of the Kubernetes API.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_types::Kubernetes;

use super::Registry;
use super::queues::Queues;
use crate::{Error, Name};

/// The queues that are resources, by name and by the path of their resource.
///
/// Invariant: both maps have the same queues.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// The setting of each queue, and whether its objects are in namespaces.
    by_name: BTreeMap<Name, (Arc<Kubernetes>, bool)>,
    /// The queues of each resource, by its full name. Queues of an older store and of several nodes may have the same.
    by_resource: BTreeMap<String, BTreeSet<Name>>,
}

/// The name of a resource in all groups, as custom resources are named. A plural has no dot.
fn full_name(group: &str, plural: &str) -> String {
    format!("{plural}.{group}")
}

impl Resources {
    pub(super) fn remove(&mut self, name: &Name) {
        let Some((kubernetes, _)) = self.by_name.remove(name) else { return };
        let resource = full_name(&kubernetes.group, &kubernetes.plural);
        if let Some(queues) = self.by_resource.get_mut(&resource) {
            queues.remove(name);
            if queues.is_empty() {
                self.by_resource.remove(&resource);
            }
        }
    }

    /// Records which resource a queue now is.
    pub(super) fn set(&mut self, name: &Name, config: &Config) {
        self.remove(name);
        let Some(kubernetes) = &config.kubernetes else { return };
        let resource = full_name(&kubernetes.group, &kubernetes.plural);
        self.by_resource.entry(resource).or_default().insert(name.clone());
        let is_namespaced = config.key.has_kubernetes_namespace() == Some(true);
        self.by_name.insert(name.clone(), (kubernetes.clone(), is_namespaced));
    }

    /// The first queue of a resource, by name.
    fn of(&self, group: &str, plural: &str) -> Option<&Name> {
        if self.by_resource.is_empty() {
            return None;
        }
        self.by_resource.get(&full_name(group, plural))?.first()
    }
}

impl Queues {
    /// Checks that no other queue is the resource that `config` names.
    pub(super) fn check_kubernetes(&self, name: &Name, config: &Config) -> Result<(), Error> {
        let Some(kubernetes) = &config.kubernetes else { return Ok(()) };
        let resource = full_name(&kubernetes.group, &kubernetes.plural);
        let queues = self.resources.by_resource.get(&resource);
        // A queue that has the resource already keeps it, so that its other settings can change.
        if queues.is_none_or(|queues| queues.contains(name)) {
            Ok(())
        } else {
            Err(Error::ResourceTaken { resource })
        }
    }
}

impl Registry {
    /// The queue that is this resource of the Kubernetes API; of several, the first by name.
    #[must_use]
    pub fn kubernetes_queue(&self, group: &str, plural: &str) -> Option<Name> {
        self.queues.read().resources.of(group, plural).cloned()
    }

    /// The queues that are resources of the Kubernetes API, by name, and whether their objects are in namespaces.
    #[must_use]
    pub fn kubernetes_queues(&self) -> Vec<(Name, Arc<Kubernetes>, bool)> {
        let queues = self.queues.read();
        let of = |(name, (kubernetes, is_namespaced)): (&Name, &(Arc<Kubernetes>, bool))| {
            (name.clone(), kubernetes.clone(), *is_namespaced)
        };
        queues.resources.by_name.iter().map(of).collect()
    }
}
