//! Pushing: what a server may send to which endpoint, and how a request is signed, sent and judged.
//!
//! This module knows no queue. The task of a queue that pushes is in `server::pushing`.
//!
//! Architecture invariants:
//! - nothing is sent to a URL that `push.allow` does not permit, or to an address that is not global and not in `push.allow_networks`;
//! - no text that this module gives out contains a secret.

mod address;
mod breaker;
mod connector;
mod destination;
mod policy;
mod sender;
mod settled;
mod verdict;

pub use self::breaker::{Breaker, Failed};
pub use self::connector::{Connector, Error as ConnectorError};
pub use self::policy::{Endpoint, Error, Policy, Refusal};
pub use self::sender::{Answer, Body, Call, Sender};
pub use self::settled::Outcome;
pub use self::verdict::Verdict;
