//! The HTTP API: parse a request, refuse a wrong one with a clear problem, call the service, reply.
//!
//! The module has no rule of a queue. A handler is dropped at any await if its client disconnects, so a mutation is one
//! synchronous step of the service, and the handler only awaits the commit.

pub mod connection;
pub mod problem;
pub mod router;
pub mod state;
pub mod wire;

mod accept;
mod access;
mod api_document;
mod blocking;
mod body;
mod body_drain;
mod body_head;
mod body_rate;
mod call;
mod conditional;
mod context;
mod cursor;
mod delivery;
mod forward;
mod forwarded_leases;
mod gate;
mod head;
mod in_flight;
mod layers;
mod limits;
mod middleware;
mod ndjson;
mod node;
mod openapi;
mod operation;
mod operations;
mod origin;
mod params;
mod public_url;
mod reply;
mod request_metrics;
mod routes;
mod telemetry;
mod trace;

pub use body_rate::BodyRateLimit;
pub use gate::Gate;
pub use in_flight::InFlightLimits;
pub use layers::cors;
pub use node::{Node, NodeError, SecretError};
pub use operations::{operation, operation_ids};
pub use request_metrics::RequestMetrics;
pub use router::{Api, router};
pub use routes::read_seed;
pub use state::{AppState, HttpLimits, Parts, StoreInfo};
