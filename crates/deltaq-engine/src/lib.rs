//! The rules of a queue: state, commands, events and refusals.
//!
//! The engine is pure. It has no I/O, no async code, no clock and no randomness: the time is an argument. A command
//! checks everything first. A refused command changes nothing, although timers that were due before it still take
//! effect. An accepted command emits [`Event`](event::Event)s, and the queue's [state](Queue) applies each of them at
//! once. The state changes only by applying events, so a replay of the journal gives the same state. A command
//! returns work for the caller in [`Effects`].
//!
//! The life of a key:
//!
//! ```text
//! add/update/delete/replace/resync               pop
//!   (absent) ------------------------> ready ------------> leased --- ack, nothing newer ---> (absent)
//!                  delay | ^ due         ^ ^                 | |
//!                        v |             | '- ack, newer ----' |
//!                      delayed <---------'--- nack, expiry ----+---- failures >= max, or reject ---> parked
//!                             (to ready at once if a newer change waits)                              |
//!   a new change (Added, Updated, Deleted, Replaced) makes a delayed or parked key ready; so does redrive <'
//! ```
//!
//! An absent key may still have a known object or a failure count. A lease whose reply could not be written ends as
//! `Undelivered`: the key returns to its former position, as if the lease had never existed. A worker may acknowledge
//! the older deltas of its lease; the key then stays leased, or goes where a settle of the others leads.
//!
//! The engine has three parts, each testable alone: the [`schedule`] (client-go's workqueue with leases: which key may be
//! delivered, when, and which worker holds it), the [`delta`] lists (the changes of each key), and the [`known`] objects
//! (what consumers have acknowledged). The [`table`] holds all three by key.

pub mod birth;
pub mod command;
pub mod config;
pub mod decimal;
mod deletion_limit;
pub mod deliveries;
pub mod delta;
pub mod effects;
pub mod event;
pub mod excerpt;
pub mod explain;
mod failing;
pub mod fairness;
pub mod feed;
pub mod follow;
pub mod followed;
pub mod groups;
pub mod id;
pub mod index_settings;
pub mod indexes;
pub mod initial;
pub mod key;
pub mod known;
pub mod limits;
pub mod lives;
pub mod mode;
pub mod object;
pub mod object_version;
pub mod omit;
pub mod pointer;
pub mod rate;
pub mod rate_limit;
pub mod ready;
pub mod refusal;
pub mod room;
pub mod schedule;
pub mod snapshot;
pub mod sources;
pub mod table;
pub mod time;
pub mod trace;
pub mod view;
pub mod walk;

mod acknowledged;
mod apply;
mod awaited;
mod births;
mod checkpoint;
mod comparison;
mod freshness;
mod group_rules;
mod image;
mod invariant;
mod job;
mod line;
mod lookups;
mod pops;
mod queue;
mod readers;
mod remembered;
mod restore;
mod scan;
mod settled;
mod shards;
mod stale_after;
mod state;
mod text_order;
mod volatile;

pub use apply::Misfit;
pub use command::Seed;
pub use comparison::Comparison;
pub use effects::{Counters, Durations, Effects, Garbage};
pub use image::Image;
pub use queue::{Queue, Status, Switches};
pub use restore::{NoNumbers, Restore};
pub use scan::ScanCursor;
pub use snapshot::LastReplace;
