//! The rules of a queue, pure: state, commands, events, refusals.
//!
//! It is not a server: there is no I/O, no async, no clock and no randomness in here. `now` is an
//! argument, and everything that happens is an [`Event`](event::Event) that [`Queue::apply`] can
//! replay. A command decides, applies and notes its events in one go; a refused one changes nothing.
//!
//! The life of a key:
//!
//! ```text
//! add/update/delete/replace/resync               pop
//!   (absent) ------------------------> ready ------------> leased --- ack, nothing newer ---> (absent)
//!                  delay | ^ due         ^ ^                 | |
//!                        v |             | '- ack, newer ----' |
//!                      delayed <---------'--- nack, expiry ----+---- failures >= max, or reject ---> parked
//!                                                                                                     |
//!   news (Added, Updated, Deleted, Replaced) makes a delayed or parked key ready; redrive does too <--'
//! ```
//!
//! Three parts compose, each testable alone: [`schedule`] (client-go's workqueue with leases: who
//! may have which key, and when), [`delta`] (what has happened to a key) and the known objects in
//! the [`table`] (what consumers have acknowledged).

pub mod command;
pub mod config;
pub mod delta;
pub mod event;
pub mod excerpt;
pub mod key;
pub mod known;
pub mod limits;
pub mod mode;
pub mod object;
pub mod rate_limit;
pub mod refusal;
pub mod schedule;
pub mod snapshot;
pub mod table;
pub mod time;
pub mod trace;

mod apply;
mod checkpoint;
mod comparison;
mod deliver;
mod image;
mod invariant;
mod paged;
mod produce;
mod queue;
mod replace;
mod restore;
mod settled;
mod shards;
mod sweep;
pub(crate) mod walk;

pub use apply::Misfit;
pub use comparison::Comparison;
pub use image::Image;
pub use queue::{Counters, Durations, Initial, LastReplace, Queue, Status};
pub use replace::Garbage;
pub use sweep::{ScanCursor, Seed};
