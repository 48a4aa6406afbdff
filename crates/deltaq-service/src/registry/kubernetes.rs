//! Which queues are resources of the Kubernetes API.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use deltaq_engine::config::Config;
use deltaq_types::Kubernetes;

use super::Registry;
use crate::{Error, Name};

/// The queues that are resources, by name and by the path of their resource.
///
/// Invariant: both maps have the same queues.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// The setting of each queue, and whether its objects are in namespaces.
    by_name: BTreeMap<Name, (Arc<Kubernetes>, bool)>,
    /// The queues of each resource, by the full name of the resource. Several queues may be one resource in an older store, or on several nodes.
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

    /// Checks that no other queue is the resource that `config` names.
    pub(super) fn check(&self, name: &Name, config: &Config) -> Result<(), Error> {
        let Some(kubernetes) = &config.kubernetes else { return Ok(()) };
        let resource = full_name(&kubernetes.group, &kubernetes.plural);
        let queues = self.by_resource.get(&resource);
        // A queue that is the resource already stays it, so that its other settings can change.
        if queues.is_none_or(|queues| queues.contains(name)) {
            Ok(())
        } else {
            Err(Error::ResourceTaken { resource })
        }
    }

    /// The first queue of a resource, by name.
    fn of(&self, group: &str, plural: &str) -> Option<&Name> {
        if self.by_resource.is_empty() {
            return None;
        }
        self.by_resource.get(&full_name(group, plural))?.first()
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

#[cfg(test)]
mod tests {
    use deltaq_runtime::clock::Clock;
    use deltaq_runtime::lifecycle::Shutdown;

    use super::*;
    use crate::metrics::Metrics;
    use crate::{Creator, Limits, Partitions, WatchLimits};

    fn config(plural: &str, key: &str) -> Config {
        let document = serde_json::json!({
            "key": serde_json::from_str::<serde_json::Value>(key).unwrap(),
            "kubernetes": {"group": "shop.example", "version": "v1", "kind": "Price", "plural": plural},
        });
        let mut settings = serde_json::to_value(Config::default().document()).unwrap();
        settings.as_object_mut().unwrap().extend(document.as_object().unwrap().clone());
        Config::compile(&serde_json::from_value(settings).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn resources_are_found_while_their_queues_have_the_setting() {
        const NAMESPACED: &str = r#"[{"pointer":"/metadata/namespace","optional":true},"/metadata/name"]"#;
        let limits =
            Limits { auto_create: true, max_queues: 9, max_waiters: 1, watch: WatchLimits::default() };
        let (clock, _hand) = Clock::manual(1_000_000);
        let metrics = Metrics::new(10).unwrap();
        let shutdown = Shutdown::manual(std::time::Duration::from_secs(1));
        let registry = Registry::new(limits, Config::default(), clock, None, shutdown, metrics);
        let partitions = Partitions::single(Arc::new(registry.without_tasks()));
        let registry = partitions.registries().next().unwrap();
        let find = |plural| partitions.kubernetes_queue("shop.example", plural).map(|name| name.to_string());
        let all = || {
            let queues = partitions.kubernetes_queues();
            let shown = |(name, of, is_namespaced): &(Name, Arc<Kubernetes>, bool)| {
                format!("{name} {} {is_namespaced}", of.plural)
            };
            queues.iter().map(shown).collect::<Vec<_>>()
        };
        let create = |name: &str, config: Config| {
            registry.create(&Name::new(name).unwrap(), Arc::new(config), &Creator::default())
        };
        assert_eq!((find("prices"), all().len()), (None, 0));
        let (q, _) = create("q", config("prices", NAMESPACED)).unwrap();
        assert!(matches!(create("a", config("prices", NAMESPACED)), Err(Error::ResourceTaken { .. })));
        create("b", Config::default()).unwrap();
        let (a, _) = create("a", config("rates", NAMESPACED)).unwrap();
        assert_eq!(
            (find("prices").as_deref(), all()),
            (Some("q"), vec!["a rates true".into(), "q prices true".into()])
        );
        let next = config("costs", r#"["/metadata/name"]"#);
        registry.configure(&q, |_| Ok::<_, Error>(next)).await.unwrap();
        assert_eq!((find("prices"), all()), (None, vec!["a rates true".into(), "q costs false".into()]));
        let taken = config("costs", NAMESPACED);
        registry.configure(&a, |_| Ok::<_, Error>(taken)).await.unwrap_err();
        registry.configure(&a, |_| Ok::<_, Error>(Config::default())).await.unwrap();
        assert_eq!(all(), ["q costs false"]);
        drop(registry.delete(q.name(), false).unwrap());
        assert_eq!((find("costs"), all().len()), (None, 0));
    }
}
