//! What a history has given out, and what the present timeline has of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::node::Running;

/// Something that a reply has named.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// What a caller sends.
    pub(super) text: String,
    pub(super) number: u64,
    /// Whether its life began above everything that was given out before. Otherwise a time that comes back may have the same numbers.
    pub(super) is_new: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Version,
    /// The id of a server-sent event.
    Event,
    /// A `continue` token.
    Cursor,
    /// The entity tag of the object of a key.
    Tag(String),
    Lease,
}

/// What is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    pub(super) items: BTreeSet<usize>,
    /// The present entity tag of each key.
    pub(super) tags: BTreeMap<String, usize>,
    /// The live leases.
    pub(super) live: BTreeSet<usize>,
    /// The starts: how many items were given out before, and the floor of the calendar.
    pub(super) starts: Vec<(usize, u64)>,
}

impl Kind {
    const fn name(&self, is_kept: bool) -> &'static str {
        match (self, is_kept) {
            (Self::Version, true) => "a kept version",
            (Self::Version, false) => "a lost version",
            (Self::Event, true) => "a kept event id",
            (Self::Event, false) => "a lost event id",
            (Self::Cursor, true) => "a kept cursor",
            (Self::Cursor, false) => "a lost cursor",
            (Self::Tag(_), true) => "a kept entity tag",
            (Self::Tag(_), false) => "a lost entity tag",
            (Self::Lease, true) => "a kept lease",
            (Self::Lease, false) => "a lost lease",
        }
    }
}

impl Timeline {
    /// Whether plain numbers can tell that this one is lost: each start since was above it by the calendar. A clock that was behind may have led to
    /// the same numbers.
    fn can_tell(&self, index: usize, item: &Item) -> bool {
        let since = self.starts.iter().filter(|(before, _)| *before > index);
        item.is_new && since.clone().count() > 0 && since.clone().all(|(_, floor)| *floor >= item.number)
    }

    /// Uses an item as a caller does, and checks the replies. Returns what was checked; nothing if nobody can tell.
    pub(super) async fn check(
        &self,
        index: usize,
        item: &Item,
        node: &Running,
        has_objects: bool,
    ) -> Option<&'static str> {
        let is_kept = self.items.contains(&index);
        let Item { kind, text, .. } = item;
        let get = async |path: String| node.call("GET", &path, &Value::Null).await;
        match kind {
            Kind::Version if is_kept || self.can_tell(index, item) => {
                let mut answers = vec![get(format!("/synced?resource_version={text}")).await];
                if has_objects {
                    answers.push(get(format!("/watch?resource_version={text}")).await);
                    answers.push(get(format!("/latest/absent?min_resource_version={text}")).await);
                }
                for answer in answers {
                    // The key is absent, which only the read says that has the version.
                    let is_accepted = answer.status == 200 || answer.body["code"] == "key-not-found";
                    let is_refused = matches!(answer.status, 409 | 410);
                    assert!(
                        if is_kept { is_accepted } else { is_refused },
                        "{index} {item:?}, kept {is_kept}: {answer:?}"
                    );
                }
            }
            Kind::Version => return None,
            Kind::Event => {
                let stream = node.events_after(text).await;
                assert_eq!(stream.contains("event: Expired\n"), !is_kept, "{index} {item:?}: {stream}");
            }
            Kind::Cursor => {
                let answer = get(format!("/items?limit=1&continue={text}")).await;
                assert_eq!(answer.status, if is_kept { 200 } else { 410 }, "{index} {item:?}: {answer:?}");
            }
            Kind::Tag(key) => {
                let header = [("if-none-match", text.as_str())];
                let answer = node.call_with("GET", &format!("/latest/{key}"), &header, &Value::Null).await;
                let is_present = is_kept && self.tags.get(key) == Some(&index);
                assert_eq!(answer.status == 304, is_present, "{index} {item:?}, kept {is_kept}: {answer:?}");
            }
            Kind::Lease => {
                let body = json!({ "lease_ids": [text], "lease_duration": "12h" });
                let answer = node.call("POST", "/extend", &body).await;
                let is_live = is_kept && self.live.contains(&index);
                assert_eq!(
                    answer.status,
                    if is_live { 200 } else { 409 },
                    "{index} {item:?}, kept {is_kept}: {answer:?}"
                );
            }
        }
        Some(kind.name(is_kept))
    }
}
