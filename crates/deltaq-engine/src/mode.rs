//! Every rule in which the modes differ.

use deltaq_types::Mode;

/// The rules of a mode. The engine asks for these rules and never for the mode itself.
#[derive(Clone, Copy, Debug)]
pub struct ModeRules {
    /// Keys have objects and deltas. A queue without objects accepts only adds, which may be rate-limited
    /// (`AddRateLimited`).
    pub has_objects: bool,
    /// At most one delta of a key waits: the newest delta.
    pub only_newest_waits: bool,
    /// A deletion is not delivered if no consumer has seen the key; the key is dropped instead.
    pub drops_unseen_keys: bool,
    /// A delay is a separate add (`AddAfter`). It survives the delivery of the key, a key can be ready and have a
    /// delay, and the key becomes ready when the delay elapses.
    pub delays_are_adds: bool,
    /// A closed queue ignores adds and freezes its delays until it is reopened (`ShutDown`).
    pub stops_when_closed: bool,
    /// Every accepted call is a separate delta: no delta is merged, superseded or left out. Calls that exceed the
    /// bounds of a key are refused. A Delete of an absent key is also a delta.
    pub keeps_every_delta: bool,
    /// A lease contains only the oldest delta of its key, and the ready queue is ordered by these deltas. A newer
    /// delta waits for its turn: it neither ends a backoff nor makes a parked key ready. A discard drops only the
    /// delta that failed.
    pub leases_oldest_delta: bool,
}

const DELTA: ModeRules = ModeRules {
    has_objects: true,
    only_newest_waits: false,
    drops_unseen_keys: false,
    delays_are_adds: false,
    stops_when_closed: false,
    keeps_every_delta: false,
    leases_oldest_delta: false,
};
const LATEST: ModeRules = ModeRules { only_newest_waits: true, drops_unseen_keys: true, ..DELTA };
const KEYS: ModeRules =
    ModeRules { has_objects: false, delays_are_adds: true, stops_when_closed: true, ..DELTA };
const EVENTS: ModeRules = ModeRules { keeps_every_delta: true, leases_oldest_delta: true, ..DELTA };

impl ModeRules {
    /// The rules of the mode.
    #[must_use]
    pub const fn of(mode: Mode) -> Self {
        match mode {
            Mode::Delta => DELTA,
            Mode::Latest => LATEST,
            Mode::Keys => KEYS,
            Mode::Events => EVENTS,
        }
    }
}
