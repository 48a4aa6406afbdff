//! The settings of one queue, validated.

mod document;
mod order;

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::terms::DELAY_MAX;
use deltaq_types::{
    CloudEvents, FollowedView, Hook, Kubernetes, Mode, Push, RawObject, Retention, VersionTies,
};

pub use self::document::Invalid;
pub use self::order::{Order, OrderError, OrderValue};
use super::delta::Cap;
pub use super::follow::Follow;
pub use super::group_rules::{GroupAfter, GroupBy, GroupOverride, GroupRules};
use super::index_settings::IndexSettings;
use super::key::KeySpec;
use super::limits::DEBOUNCE_MAX_WAITS;
pub use super::mode::ModeRules;
use super::object::{ArrayKeys, Ignored};
use super::pointer::Pointer;
use super::rate::Rate;
use super::rate_limit::RateLimiter;
use super::view::View;

/// The rules that change and validate a queue's objects before they reach the engine, in their original text. The
/// engine stores and compares the rules but does not apply them.
///
/// Invariant: there is a schema, or at least one pointer to prune.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionText {
    /// The JSON Schema that objects must satisfy, without whitespace between its tokens.
    pub schema: Option<RawObject>,
    /// The pointers to members that are removed.
    pub prune: Vec<Pointer>,
}

impl AdmissionText {
    /// The rules; `None` if there is neither a schema nor a pointer.
    #[must_use]
    pub fn new(schema: Option<RawObject>, prune: Vec<Pointer>) -> Option<Self> {
        (schema.is_some() || !prune.is_empty()).then_some(Self { schema, prune })
    }

    /// The text of the schema.
    #[must_use]
    pub fn schema_text(&self) -> Option<&str> {
        self.schema.as_ref().map(RawObject::as_str)
    }
}

/// How long a key must be quiet before it is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// The time without a change; zero for none.
    pub quiet: Duration,
    /// The longest wait of a change. Invariant: not shorter than `quiet`.
    pub max_wait: Duration,
}

impl Quiet {
    /// No wait.
    pub const NONE: Self = Self { quiet: Duration::ZERO, max_wait: Duration::ZERO };

    /// The times of a window; `None` if `max_wait` is shorter than `quiet`. Without `max_wait` it is ten times as long, but at most as
    /// long as the longest delay.
    #[must_use]
    pub fn new(quiet: Duration, max_wait: Option<Duration>) -> Option<Self> {
        let default = || quiet.saturating_mul(DEBOUNCE_MAX_WAITS).min(DELAY_MAX).max(quiet);
        let max_wait = max_wait.unwrap_or_else(default);
        (max_wait >= quiet).then_some(Self { quiet, max_wait })
    }
}

/// Which changes of a queue wait for their key to be quiet, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debounce {
    /// The time without a change; zero for no wait.
    pub quiet: Duration,
    /// The longest wait of a change; `None` for [`DEBOUNCE_MAX_WAITS`] times `quiet`. Invariant: not shorter than `quiet`.
    pub max_wait: Option<Duration>,
    /// Whether a Delete does not wait.
    pub delivers_deletes_now: bool,
    /// Whether the changes of a Replace wait, too.
    pub debounces_lists: bool,
}

impl Debounce {
    /// The times of a window.
    #[must_use]
    pub fn times(&self) -> Quiet {
        Quiet::new(self.quiet, self.max_wait).unwrap_or(Quiet::NONE)
    }
}

/// All settings of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// What a pop delivers.
    pub mode: Mode,
    /// The JSON pointers to the parts of an object's key.
    pub key: KeySpec,
    /// The JSON pointer to the version of an object. The version grows with each state of a key. `None` if objects
    /// have no version.
    pub version: Option<Pointer>,
    /// What becomes of an object with the version of the newest state of its key; `None` for the default.
    pub version_ties: Option<VersionTies>,
    /// Whether the queue stores acknowledged objects.
    pub known_objects: bool,
    /// Whether Replace queues `Replaced`, or `Sync` like older versions of client-go.
    pub emit_replaced: bool,
    /// The length of a lease, unless the pop specifies another length.
    pub lease: Duration,
    /// Number of failures after which a key is parked; 0 means never.
    pub max_failures: u32,
    /// How long a failed key waits before it is delivered again.
    pub rate_limiter: RateLimiter,
    /// Which changes wait for their key to be quiet; `None` for none.
    pub debounce: Option<Debounce>,
    /// How ready keys are ordered; `None` for the order of their arrival.
    pub order: Option<Order>,
    /// The groups of keys that take turns; `None` if all keys are in one order.
    pub groups: Option<Arc<GroupRules>>,
    /// Maximum number of keys that workers hold at once; `None` for no limit.
    pub max_leased: Option<u64>,
    /// How many keys are delivered per second; `None` for no limit.
    pub rate: Option<Rate>,
    /// The interval at which all known objects are delivered again; `None` means never.
    pub resync_period: Option<Duration>,
    /// Maximum number of keys in the queue, including known keys.
    pub max_keys: usize,
    /// Maximum size of an object, in bytes of JSON.
    pub max_object_bytes: usize,
    /// Maximum number of waiting deltas of one key. Beyond this limit the oldest deltas are merged; in mode events,
    /// new deltas are refused.
    pub max_deltas_per_key: usize,
    /// Maximum size of the waiting objects of one key, in bytes. Beyond this limit the oldest deltas are merged; in
    /// mode events, new deltas are refused.
    pub max_bytes_per_key: usize,
    /// Maximum percentage of a source's keys that a Replace deletes, unless the call overrides it.
    pub max_delete_percent: Option<f64>,
    /// Maximum number of keys that a Replace deletes, unless the call overrides it.
    pub max_deletes: Option<u64>,
    /// How long journaled events are kept.
    pub retention: Retention,
    /// The indexes of the known objects.
    pub indexes: IndexSettings,
    /// The arrays whose elements differences compare one by one.
    pub array_keys: ArrayKeys,
    /// The members of objects whose change alone is no change.
    pub ignored: Ignored,
    /// The queue that this queue follows, and which of its objects. `None` for a queue with its own producers.
    pub follow: Option<Arc<Follow>>,
    /// The endpoint that gets the keys as requests. The engine stores the setting and does not apply it.
    pub push: Option<Arc<Push>>,
    /// The webhooks that the queue takes as changes. The engine stores the setting and does not apply it.
    pub hook: Option<Arc<Hook>>,
    /// How CloudEvents become changes; `None` for the default. The engine stores the setting and does not apply it.
    pub cloudevents: Option<Arc<CloudEvents>>,
    /// The resource of the Kubernetes API that the queue is. The engine keeps the [births](super::birth) of its keys.
    pub kubernetes: Option<Arc<Kubernetes>>,
    /// The owner of the file of settings that made the queue. The engine stores the setting and does not apply it.
    pub owner: Option<Arc<str>>,
    /// The schema and pruning of incoming objects; `None` if there is neither.
    pub admission: Option<Arc<AdmissionText>>,
}

impl Config {
    /// The cap of a list of waiting deltas.
    #[must_use]
    pub fn cap(&self) -> Cap {
        Cap { deltas: self.max_deltas_per_key, bytes: self.max_bytes_per_key }
    }

    /// The rules of the queue's mode.
    #[must_use]
    pub fn rules(&self) -> ModeRules {
        ModeRules::of(self.mode)
    }

    /// Whether a Delete of a key that the queue does not have is delivered. Mode events delivers every Delete, and mode
    /// latest without known objects can't tell which keys a consumer has seen. Mode delta without known objects ignores
    /// such a Delete, like client-go's DeltaFIFO without a store.
    #[must_use]
    pub fn delivers_deletes_of_absent_keys(&self) -> bool {
        let rules = self.rules();
        rules.keeps_every_delta || (rules.drops_unseen_keys && !self.known_objects)
    }

    /// Whether an object with the version of the newest state of its key is applied if it differs from it.
    #[must_use]
    pub fn applies_ties(&self) -> bool {
        self.version_ties.map_or(self.hook.is_some(), |ties| ties == VersionTies::Apply)
    }

    /// The view that clients of Kubernetes read; `None` if the queue is no resource of theirs.
    #[must_use]
    pub fn kubernetes_view(&self) -> Option<View> {
        self.kubernetes.as_ref().map(|kubernetes| match kubernetes.view {
            FollowedView::Latest => View::Latest,
            FollowedView::Known => View::Known,
        })
    }

    /// The first field that differs in `next` but can't change while the queue holds keys.
    #[must_use]
    pub fn immutable_difference(&self, next: &Self) -> Option<&'static str> {
        if self.mode != next.mode {
            Some("mode")
        } else if self.key != next.key {
            Some("key")
        } else if self.known_objects != next.known_objects {
            Some("known_objects")
        } else {
            None
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Delta,
            key: KeySpec::default(),
            version: None,
            version_ties: None,
            known_objects: true,
            emit_replaced: true,
            lease: Duration::from_secs(30),
            max_failures: 20,
            rate_limiter: RateLimiter::default(),
            debounce: None,
            order: None,
            groups: None,
            max_leased: None,
            rate: None,
            resync_period: None,
            max_keys: 10_000_000,
            max_object_bytes: 1 << 20,
            max_deltas_per_key: 1_000,
            max_bytes_per_key: 16 << 20,
            max_delete_percent: None,
            max_deletes: None,
            retention: Retention::default(),
            indexes: IndexSettings::default(),
            array_keys: ArrayKeys::default(),
            ignored: Ignored::default(),
            follow: None,
            push: None,
            hook: None,
            cloudevents: None,
            kubernetes: None,
            owner: None,
            admission: None,
        }
    }
}
