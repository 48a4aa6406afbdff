//! When a key entered a view.

use serde::{Deserialize, Serialize};

use super::id::Rv;
use super::time::Time;

/// The event with which a key entered a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Birth {
    /// The number of the event.
    pub rv: Rv,
    /// When it happened.
    pub at: Time,
}
