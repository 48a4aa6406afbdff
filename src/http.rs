//! The HTTP API: parse, refuse what is wrong with a clear problem, call the service, answer.
//!
//! It holds no rule of a queue. Handlers may be dropped at any await (a caller that has gone), so a
//! mutation is one synchronous step of the service and the handler only awaits its commit.

pub mod connection;
pub mod openapi;
pub mod problem;
pub mod router;
pub mod state;
pub mod wire;

mod access;
mod blocking;
mod body;
mod budget;
mod call;
mod chain;
mod counted;
mod cursor;
mod head;
mod ndjson;
mod operations;
mod origin;
mod params;
mod request_metrics;
mod routes;
mod telemetry;
mod trace;
mod visit;

pub use budget::Budgets;
pub use request_metrics::RequestMetrics;
pub use router::{Api, router};
pub use routes::read_seed;
pub use state::{AppState, Durability, Gate, HttpLimits, Parts};
