//! The HTTP API: parse a request, refuse a wrong one with a clear problem, call the service, reply.
//!
//! The module contains no rules of a queue. A handler may be dropped at any await if its client disconnects. So a
//! mutation is one synchronous step of the service, and the handler only awaits the commit.

pub mod connection;
pub mod problem;
pub mod router;
pub mod state;
pub mod wire;

mod api;
mod blocking;
mod cluster;
mod gate;
mod head;
mod kubernetes;
mod middleware;
mod node;
mod openapi;
mod operation;
mod place;
mod reply;
mod request;
mod request_metrics;
mod routes;
mod status;
mod telemetry;
mod timeouts;

pub(crate) use api::document::schemas;
pub use api::operations::{operation, operation_ids};
pub use gate::Gate;
pub use gate::body_rate::BodyRateLimit;
pub use gate::hooks::HookAddresses;
pub use gate::in_flight::InFlightLimits;
pub use gate::seats::Seats;
pub use node::{Node, NodeError, SecretError};
pub use reply::layers::cors;
pub(crate) use request::params::check_name;
pub use request::seed::read_seed;
pub use request_metrics::RequestMetrics;
pub use router::{Api, router};
pub use state::{AppState, HttpLimits, Parts, StoreInfo};
