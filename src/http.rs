//! The HTTP API: parse a request, refuse a wrong one with a clear problem, call the service, reply.
//!
//! The module has no rule of a queue. A handler is dropped at any await if its client disconnects, so a mutation is one
//! synchronous step of the service, and the handler only awaits the commit.

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
