//! Webhooks of vendors: whether a delivery is signed, and what it changes.
//!
//! This module knows no queue and no connection. The route is `http::routes::hooks`.
//!
//! Architecture invariants:
//! - nothing of a body is parsed before its signature was verified;
//! - signatures are compared in constant time, and no text that this module gives out contains a secret.

mod delivery;
mod form;
mod signature;

pub use self::delivery::{Change, Reading, Unapplied, hashed, id_of, kept_headers, read};
pub use self::form::text_of;
pub use self::signature::{Unsigned, verify};
