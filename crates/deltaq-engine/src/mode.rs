//! Every rule in which the modes differ.

use deltaq_types::Mode;

/// The rules of a mode. The engine asks these, and never for the mode itself.
#[derive(Clone, Copy, Debug)]
pub struct ModeRules {
    /// Keys have objects and deltas. A queue without objects takes only Add, also rate-limited (`AddRateLimited`).
    pub has_objects: bool,
    /// At most one delta of a key waits: the newest.
    pub only_newest_waits: bool,
    /// A deletion that no consumer needs to see drops the key instead of being delivered.
    pub drops_unseen_keys: bool,
    /// A delay is an Add of its own (`AddAfter`): it outlives the delivery of the key, it stays beside a key that became
    /// ready, and the key becomes ready when it elapses.
    pub delays_are_adds: bool,
    /// A closed queue ignores adds and freezes its delays until it is reopened (`ShutDown`).
    pub stops_when_closed: bool,
    /// Every accepted call is a delta of its own: no delta is merged, superseded or left out. The bounds of a key refuse
    /// instead, and a Delete of an absent key is a delta, too.
    pub keeps_every_delta: bool,
    /// A lease has only the oldest delta of its key, and the ready queue is in the order of these deltas. A newer delta waits
    /// for its turn: it neither ends a backoff nor wakes a parked key, and a discard drops only the delta that failed.
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
