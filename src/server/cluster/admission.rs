//! Whether this node takes partitions.
//!
//! Before that, it and the other nodes call each other, at the URLs that they advertise and with the secret that they share. A
//! node that the others can't call would make every queue that it takes unreachable for their clients.
//!
//! Each node calls every other node once, and reports with its heartbeats which nodes have answered. A new node is admitted
//! when it and all nodes before it have answered each other. The nodes before it are those that are admitted and, if several
//! nodes are new, those with smaller names.

use std::collections::{BTreeMap, BTreeSet};

use deltaq_journal::postgres::{Member, Node};

/// The admission of this node.
#[derive(Debug, Default)]
pub(super) struct Admission {
    is_admitted: bool,
    /// The nodes that have answered a call of this node, by their instances.
    reached: BTreeSet<i64>,
    /// The nodes that are being called.
    calling: BTreeSet<i64>,
    /// Why the last call of a node failed.
    failures: BTreeMap<i64, &'static str>,
}

impl Admission {
    pub(super) fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    pub(super) fn reached(&self) -> Vec<i64> {
        self.reached.iter().copied().collect()
    }

    /// Begins again, because this node is another member now.
    pub(super) fn begin(&mut self) {
        self.is_admitted = false;
    }

    /// The nodes to call now.
    pub(super) fn next_calls<'n>(&mut self, nodes: &'n [Node], own: &Member) -> Vec<&'n Node> {
        let known: BTreeSet<i64> = nodes.iter().map(|node| node.instance).collect();
        self.reached.retain(|instance| known.contains(instance));
        self.failures.retain(|instance, _| known.contains(instance));
        let is_unknown =
            |node: &&Node| node.name != own.name && node.is_live() && !self.reached.contains(&node.instance);
        let unknown: Vec<&Node> = nodes.iter().filter(is_unknown).collect();
        unknown.into_iter().filter(|node| self.calling.insert(node.instance)).collect()
    }

    /// Records the result of a call.
    pub(super) fn called(&mut self, instance: i64, result: Result<(), &'static str>) {
        self.calling.remove(&instance);
        match result {
            Ok(()) => {
                self.failures.remove(&instance);
                self.reached.insert(instance);
            }
            Err(why) => {
                self.failures.insert(instance, why);
            }
        }
    }

    /// Admits this node, or returns why it can't be admitted yet. `url` is the URL that it advertises.
    pub(super) fn decide(&mut self, nodes: &[Node], own: &Member, url: &str) -> Option<String> {
        if self.is_admitted {
            return None;
        }
        let is_before = |node: &&Node| {
            node.name != own.name
                && node.is_live()
                && !node.is_leaving
                && (node.has_joined || node.name < own.name)
        };
        let missing = nodes.iter().filter(is_before).find_map(|node| {
            if !self.reached.contains(&node.instance) {
                let why = self.failures.get(&node.instance).unwrap_or(&"there is no reply yet");
                return Some(format!(
                    "this node takes no queues because it can't call the node {:?} at {} (cluster.advertise of that node): {why}",
                    node.name, node.url
                ));
            }
            (!node.reached.contains(&own.instance)).then(|| {
                format!(
                    "this node takes no queues because the node {:?} has not reached it at {url} (cluster.advertise of this node); \
                     the log of that node says why",
                    node.name
                )
            })
        });
        self.is_admitted = missing.is_none();
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const URL: &str = "http://b:7070";

    fn own() -> Member {
        Member { name: "b".to_owned(), instance: 2 }
    }

    fn node(name: &str, instance: i64, has_joined: bool, reached: &[i64]) -> Node {
        Node {
            name: name.to_owned(),
            url: format!("http://{name}:7070"),
            instance,
            has_joined,
            reached: reached.to_vec(),
            ..Node::default()
        }
    }

    #[test]
    fn a_node_is_admitted_when_it_and_the_nodes_before_it_have_reached_each_other() {
        for (other, is_before) in [
            (node("a", 1, true, &[]), true),
            (node("a", 1, false, &[]), true),
            (node("c", 3, true, &[]), true),
            (node("c", 3, false, &[]), false),
            (Node { heartbeat_age: Duration::from_mins(1), ..node("a", 1, true, &[]) }, false),
            (Node { is_leaving: true, ..node("a", 1, true, &[]) }, false),
            (node("b", 2, true, &[]), false),
            (node("b", 9, true, &[]), false),
        ] {
            let mut admission = Admission::default();
            let refusal = admission.decide(std::slice::from_ref(&other), &own(), URL);
            assert_eq!((refusal.is_some(), admission.is_admitted()), (is_before, !is_before), "{other:?}");
        }
        let mut admission = Admission::default();
        let others = [node("a", 1, true, &[]), node("c", 3, true, &[2])];
        let called: Vec<i64> =
            admission.next_calls(&others, &own()).iter().map(|node| node.instance).collect();
        assert_eq!(called, [1, 3]);
        assert!(admission.next_calls(&others, &own()).is_empty(), "each is called once at a time");
        admission.called(1, Ok(()));
        admission.called(3, Err("no connection"));
        let refusal = |admission: &mut Admission, others: &[Node]| {
            admission.decide(others, &own(), URL).unwrap_or_default()
        };
        assert!(refusal(&mut admission, &others).contains("\"a\" has not reached it at http://b:7070"));
        let others = [node("a", 1, true, &[2]), others[1].clone()];
        assert!(
            refusal(&mut admission, &others)
                .contains("\"c\" at http://c:7070 (cluster.advertise of that node): no connection")
        );
        assert_eq!(admission.next_calls(&others, &own()), [&others[1]]);
        admission.called(3, Ok(()));
        assert_eq!(refusal(&mut admission, &others), "");
        assert!(admission.is_admitted());
        let later = [others[0].clone(), node("d", 4, false, &[])];
        assert_eq!(refusal(&mut admission, &later), "", "an admitted node does not wait for new nodes");
        assert_eq!(admission.next_calls(&later, &own()), [&later[1]], "but it calls them");
        assert_eq!(admission.reached(), [1]);
        admission.begin();
        let refused = refusal(&mut admission, &[node("a", 1, true, &[])]);
        assert!(refused.contains("has not reached it"), "{refused}");
    }
}
