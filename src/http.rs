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
mod call;
mod context;
mod cursor;
mod head;
mod in_flight;
mod middleware;
mod ndjson;
mod operations;
mod origin;
mod params;
mod reply;
mod request_metrics;
mod routes;
mod telemetry;
mod trace;

pub use in_flight::InFlightLimits;
pub use request_metrics::RequestMetrics;
pub use router::{Api, router};
pub use routes::read_seed;
pub use state::{AppState, Durability, Gate, HttpLimits, Parts};
