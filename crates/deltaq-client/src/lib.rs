//! A client of deltaq's HTTP API.
//!
//! [`Client`] knows how to reach a server: its address, its certificate authority, a token. A [`Call`] is one request.
//! [`Error`] tells a refusal by the server, with its problem document, from a failed connection.

mod call;
mod client;
mod error;

pub use self::call::{Body, Call};
pub use self::client::{Client, ClientOptions, Reply};
pub use self::error::Error;
pub use deltaq_types as types;
pub use reqwest::Method;
