//! What a command of a rule script prints: its reply, and where the keys are afterwards. All targets print with this module.

use super::command::without_key;
use super::duration;

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Done; there is nothing to print.
    Done,
    /// Refused, with the code of the problem and the reason.
    Refused {
        code: String,
        detail: String,
    },
    Produced(Produced),
    Replaced(Counts),
    Popped {
        items: Vec<Popped>,
        closed: bool,
        paused: bool,
        held_ms: Option<u64>,
    },
    /// The settled leases by their numbers in the script.
    Settled(Vec<(usize, Settled)>),
    /// The number of keys that an operator's command changed.
    Keys(u64),
    Purged {
        keys: u64,
        deltas: u64,
    },
    Item(Option<Item>),
    Objects(Vec<ViewObject>),
    Status(Status),
    Synced {
        synced: bool,
        remaining: u64,
        reached: Option<Reached>,
    },
    Sources(Vec<Source>),
    /// The errors of parked keys, with the number of keys and the first key of each.
    Parked(Vec<(String, u64, String)>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Produced {
    pub(crate) queued: u64,
    pub(crate) merged: u64,
    pub(crate) ignored: u64,
    pub(crate) stale: u64,
    pub(crate) duplicate: bool,
    /// The failures of the keys of a rate-limited call.
    pub(crate) keys: Vec<(String, Failed)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) replaced: u64,
    pub(crate) deleted: u64,
    pub(crate) unchanged: u64,
    pub(crate) taken_over: u64,
    pub(crate) stale: u64,
    pub(crate) duplicate: bool,
}

/// The failures of a key, and when it is delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) failures: u32,
    pub(crate) due_in_ms: Option<u64>,
    pub(crate) parked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(crate) kind: String,
    /// The object with its key.
    pub(crate) object: String,
    pub(crate) final_state_unknown: bool,
    pub(crate) coalesced: u32,
}

/// A delivered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Popped {
    /// The lease by its number in the script.
    pub(crate) lease: usize,
    pub(crate) key: String,
    pub(crate) deltas: Vec<Delta>,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) is_in_initial_list: bool,
    /// The known object, if the pop asked for it.
    pub(crate) known: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Ok(Option<Failed>),
    /// The queue is held.
    Held {
        held_ms: u64,
    },
    Extended {
        expires_in_ms: u64,
        pending_deltas: u64,
        deleted: bool,
    },
    Repeated,
    NotLeased,
    /// How the lease had ended.
    Stale(String),
}

/// A key and what waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: String,
    /// `ready`, `delayed`, `leased`, `parked`, or `known` for a key that has only a known object; `None` for a key that has failures.
    pub(crate) state: Option<String>,
    pub(crate) waiting: Vec<Delta>,
    pub(crate) leased: Vec<Delta>,
    pub(crate) attempt: u32,
    pub(crate) failures: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) due_in_ms: Option<u64>,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) owner: Option<String>,
}

/// An object of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewObject {
    pub(crate) key: String,
    pub(crate) object: String,
    pub(crate) owner: Option<String>,
    pub(crate) version: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    /// Ready, delayed, leased, parked, known.
    pub(crate) counts: [u64; 5],
    pub(crate) version: u64,
    pub(crate) oldest_unacknowledged_ms: u64,
    pub(crate) paused: bool,
    pub(crate) held_ms: Option<u64>,
    pub(crate) closed: bool,
    pub(crate) drained: bool,
}

/// Whether everything up to a version is acknowledged, and the parked keys that were left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) reached: bool,
    pub(crate) parked: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) keys: u64,
    pub(crate) sequence: Option<u64>,
}

/// Where the keys of a queue are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// In the order of delivery.
    pub(crate) ready: Vec<String>,
    /// By due time, with the milliseconds until then.
    pub(crate) delayed: Vec<(String, u64)>,
    /// By the number of the lease, with the worker.
    pub(crate) leased: Vec<(usize, String, Option<String>)>,
    /// By key.
    pub(crate) parked: Vec<String>,
    /// The number of the newest event, counted from the first.
    pub(crate) version: u64,
}

impl Places {
    /// The lines that differ from those of `before`.
    pub(crate) fn changes(&self, before: &Self) -> Vec<String> {
        let pairs = self.lines().into_iter().zip(before.lines());
        pairs.filter(|(after, before)| after != before).map(|(after, _)| after).collect()
    }

    fn lines(&self) -> [String; 4] {
        let delayed = self.delayed.iter().map(|(key, ms)| format!("{key} {}", duration::format(*ms)));
        let leased = self.leased.iter().map(|(lease, key, worker)| {
            let worker = worker.as_ref().map(|worker| format!("{worker}, ")).unwrap_or_default();
            format!("{key} ({worker}lease {lease})")
        });
        let line = |state: &str, keys: Vec<String>| {
            let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            format!("{state}: {keys}")
        };
        [
            line("ready", self.ready.clone()),
            line("delayed", delayed.collect()),
            line("leased", leased.collect()),
            line("parked", self.parked.clone()),
        ]
    }
}

impl Reply {
    /// Whether the command had no effect, so that the queue has no new event.
    pub(crate) fn is_without_effect(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Produced(produced) => produced.duplicate,
            Self::Replaced(replaced) => replaced.duplicate,
            Self::Settled(settled) => {
                settled.iter().all(|(_, settled)| matches!(settled, Settled::Repeated | Settled::Stale(_)))
            }
            _ => false,
        }
    }

    /// The reply as lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Done => Vec::new(),
            Self::Refused { code, detail } => vec![format!("refused {code}: {detail}")],
            Self::Produced(produced) => produced.lines(),
            Self::Replaced(replaced) => vec![replaced.text()],
            Self::Popped { items, closed, paused, held_ms } => popped(items, [*closed, *paused], *held_ms),
            Self::Settled(settled) => {
                settled.iter().map(|(lease, settled)| format!("lease {lease}: {}", settled.text())).collect()
            }
            Self::Keys(keys) => vec![format!("keys {keys}")],
            Self::Purged { keys, deltas } => vec![format!("keys {keys}, deltas {deltas}")],
            Self::Item(None) => vec!["the queue does not have the key".to_owned()],
            Self::Item(Some(item)) => item.lines(),
            Self::Objects(objects) if objects.is_empty() => vec!["no objects".to_owned()],
            Self::Objects(objects) => objects.iter().map(ViewObject::text).collect(),
            Self::Status(status) => status.lines(),
            Self::Synced { synced, remaining, reached } => vec![synced_text(*synced, *remaining, *reached)],
            Self::Sources(sources) if sources.is_empty() => vec!["no sources".to_owned()],
            Self::Sources(sources) => sources.iter().map(Source::text).collect(),
            Self::Parked(errors) => errors
                .iter()
                .map(|(error, keys, first)| format!("error {error:?}: keys {keys}, the first {first}"))
                .collect(),
        }
    }
}

impl Produced {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![joined([
            Some(format!("queued {}", self.queued)),
            counted("merged", self.merged),
            counted("ignored", self.ignored),
            counted("stale", self.stale),
            self.duplicate.then(|| "duplicate".to_owned()),
        ])];
        lines.extend(self.keys.iter().map(|(key, failed)| format!("{key}: {}", failed.text())));
        lines
    }
}

impl Counts {
    fn text(&self) -> String {
        joined([
            Some(format!("replaced {}", self.replaced)),
            Some(format!("deleted {}", self.deleted)),
            counted("unchanged", self.unchanged),
            counted("taken_over", self.taken_over),
            counted("stale", self.stale),
            self.duplicate.then(|| "duplicate".to_owned()),
        ])
    }
}

impl Failed {
    fn text(self) -> String {
        let place = match self {
            Self { parked: true, .. } => "parked".to_owned(),
            Self { due_in_ms: Some(ms), .. } => format!("due in {}", duration::format(ms)),
            _ => "ready".to_owned(),
        };
        format!("failures {}, {place}", self.failures)
    }
}

impl Delta {
    fn text(&self, key: &str) -> String {
        let unknown = if self.final_state_unknown { " (final_state_unknown)" } else { "" };
        let merged =
            if self.coalesced > 0 { format!(" (coalesced {})", self.coalesced) } else { String::new() };
        format!("{} {}{unknown}{merged}", self.kind, without_key(key, &self.object))
    }
}

fn deltas(key: &str, deltas: &[Delta]) -> String {
    deltas.iter().map(|delta| delta.text(key)).collect::<Vec<_>>().join(", ")
}

fn popped(items: &[Popped], [closed, paused]: [bool; 2], held_ms: Option<u64>) -> Vec<String> {
    let mut lines: Vec<String> = items.iter().map(Popped::text).collect();
    if items.is_empty() {
        let flags =
            [closed.then(|| "closed".to_owned()), paused.then(|| "paused".to_owned()), held_ms.map(held)];
        lines.push(joined([Some("no key".to_owned())].into_iter().chain(flags)));
    }
    lines
}

impl Popped {
    fn text(&self) -> String {
        let deltas = match &*self.deltas {
            [] => String::new(),
            some => format!(" [{}]", deltas(&self.key, some)),
        };
        joined([
            Some(format!("lease {}: {}{deltas}", self.lease, self.key)),
            (self.attempt != 1).then(|| format!("attempt {}", self.attempt)),
            (self.failures > 0).then(|| format!("failures {}", self.failures)),
            self.is_in_initial_list.then(|| "is_in_initial_list".to_owned()),
            self.known.as_ref().map(|known| format!("known {}", without_key(&self.key, known))),
        ])
    }
}

impl Settled {
    fn text(&self) -> String {
        match self {
            Self::Ok(None) => "ok".to_owned(),
            Self::Held { held_ms } => format!("ok, {}", held(*held_ms)),
            Self::Ok(Some(failed)) => format!("ok, {}", failed.text()),
            Self::Extended { expires_in_ms, pending_deltas, deleted } => joined([
                Some(format!("ok, expires in {}", duration::format(*expires_in_ms))),
                counted("pending_deltas", *pending_deltas),
                deleted.then(|| "deleted".to_owned()),
            ]),
            Self::Repeated => "repeated".to_owned(),
            Self::NotLeased => "not_leased".to_owned(),
            Self::Stale(outcome) => format!("stale, {outcome}"),
        }
    }
}

impl Item {
    /// A key that has a known object and nothing else.
    pub(crate) fn known(key: &str) -> Self {
        Self { key: key.to_owned(), state: Some("known".to_owned()), ..Self::default() }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![joined([
            Some(format!("{} {}", self.key, self.state.as_deref().unwrap_or("idle"))),
            self.expires_in_ms.map(|ms| format!("expires in {}", duration::format(ms))),
            self.due_in_ms.map(|ms| format!("due in {}", duration::format(ms))),
            (self.attempt > 0).then(|| format!("attempt {}", self.attempt)),
            (self.failures > 0).then(|| format!("failures {}", self.failures)),
            self.last_error.as_ref().map(|error| format!("last_error {error:?}")),
            self.owner.as_ref().map(|owner| format!("owner {owner}")),
        ])];
        if !self.leased.is_empty() {
            lines.push(format!("leased [{}]", deltas(&self.key, &self.leased)));
        }
        if !self.waiting.is_empty() {
            lines.push(format!("waiting [{}]", deltas(&self.key, &self.waiting)));
        }
        lines
    }
}

impl ViewObject {
    fn text(&self) -> String {
        let owner = self.owner.as_ref().map(|owner| format!("source {owner}"));
        let object = format!("{} {}", self.key, without_key(&self.key, &self.object));
        joined([Some(object), owner, Some(format!("version {}", self.version))])
    }
}

impl Status {
    fn lines(&self) -> Vec<String> {
        let names = ["ready", "delayed", "leased", "parked", "known"];
        let counts = names.iter().zip(self.counts).map(|(name, count)| Some(format!("{name} {count}")));
        let oldest = duration::format(self.oldest_unacknowledged_ms);
        vec![
            joined(counts),
            joined([
                Some(format!("version {}", self.version)),
                Some(format!("oldest unacknowledged change {oldest}")),
                self.paused.then(|| "paused".to_owned()),
                self.held_ms.map(held),
                self.closed.then(|| "closed".to_owned()),
                self.drained.then(|| "drained".to_owned()),
            ]),
        ]
    }
}

impl Source {
    fn text(&self) -> String {
        let sequence = self.sequence.map(|number| format!("sequence {number}"));
        joined([Some(format!("{}: keys {}", self.name, self.keys)), sequence])
    }
}

fn synced_text(synced: bool, remaining: u64, reached: Option<Reached>) -> String {
    let reached = reached.map(|Reached { reached, parked }| {
        joined([Some(if reached { "reached" } else { "not reached" }.to_owned()), counted("parked", parked)])
    });
    let synced = if synced { "synced".to_owned() } else { format!("not synced, remaining {remaining}") };
    reached.unwrap_or(synced)
}

fn held(ms: u64) -> String {
    format!("held for {}", duration::format(ms))
}

/// A count that is printed unless it is 0.
fn counted(name: &str, count: u64) -> Option<String> {
    (count > 0).then(|| format!("{name} {count}"))
}

fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
