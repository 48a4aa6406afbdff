//! The gate: the checks that a request must pass before its handler runs. It uses the parts of a request, but not its
//! context.

pub(super) mod access;
pub(super) mod body_rate;
pub(super) mod hooks;
pub(super) mod in_flight;
pub(super) mod limits;
pub(super) mod origin;
pub(super) mod seats;

use std::sync::Arc;

use self::hooks::HookAddresses;
use self::in_flight::InFlightLimits;
use crate::access::Access;
use crate::config;

/// Authorization and in-flight limits.
#[derive(Debug)]
pub struct Gate {
    /// The tokens.
    pub access: Access,
    /// Whether a caller needs a certificate.
    pub demands_certificates: bool,
    /// The limits on requests in flight.
    pub in_flight: Arc<InFlightLimits>,
    /// The limits of the addresses that send deliveries of webhooks.
    pub hooks: HookAddresses,
}

impl Gate {
    /// Creates a gate without tokens and limits.
    #[must_use]
    pub fn open() -> Self {
        let settings = config::Settings::default();
        let server = config::Server {
            max_reads_in_flight: usize::MAX,
            max_writes_in_flight: usize::MAX,
            max_lists_in_flight: usize::MAX,
            max_waits_in_flight: usize::MAX,
            max_watches_in_flight: usize::MAX,
            max_body_bytes_in_flight: usize::MAX,
            max_reply_bytes_in_flight: usize::MAX,
            ..settings.server
        };
        let in_flight = Arc::new(InFlightLimits::new(&server, &settings.hooks));
        let hooks = HookAddresses::new(&settings.hooks);
        Self { access: Access::default(), demands_certificates: false, in_flight, hooks }
    }
}
