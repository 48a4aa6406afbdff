//! The HTTP API: parse, refuse what is wrong with a clear problem, call the service, answer.
//!
//! It holds no rule of a queue. Handlers may be dropped at any await (a caller that has gone), so a
//! mutation is one synchronous step of the service and the handler only awaits its commit.

pub mod openapi;
pub mod problem;
pub mod router;
pub mod server;
pub mod state;
pub mod wire;

mod access;
mod aside;
mod body;
mod budget;
mod call;
mod chain;
mod counted;
mod cursor;
mod delivery;
mod guard;
mod head;
mod hot;
mod in_time;
mod leftover;
mod measures;
mod ndjson;
mod params;
mod routes;
mod telemetry;
mod trace;
mod visit;
mod wakes;

pub use budget::Budgets;
pub use measures::Measures;
pub use router::{Api, router};
pub use routes::read_seed;
pub use state::{AppState, Durability, Gate, HttpLimits, Parts};
