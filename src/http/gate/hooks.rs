//! The limits of an address that sends deliveries of webhooks. A delivery has no token, so the address is all that tells senders apart
//! before the signature is verified.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::access::{Bucket, Rate};
use crate::config;
use crate::http::problem::{Code, Problem};

/// One address may have this part of all deliveries in flight.
const SHARE: usize = 16;
/// Above this number of addresses, those that rest are forgotten.
const ADDRESSES_MAX: usize = 10_000;

/// The addresses that send deliveries.
#[derive(Debug)]
pub struct HookAddresses {
    /// Maximum number of deliveries of one address in flight.
    max: usize,
    rate: Rate,
    addresses: Mutex<HashMap<IpAddr, Arc<Address>>>,
}

/// An address. The number of its deliveries in flight is that of the references besides the map's.
#[derive(Debug, Default)]
struct Address {
    bucket: Bucket,
}

/// A delivery in flight.
#[derive(Debug)]
pub(in crate::http) struct HookTurn {
    _address: Arc<Address>,
}

impl HookAddresses {
    /// The limits of the settings.
    #[must_use]
    pub fn new(settings: &config::Hooks) -> Self {
        let each_second = settings.max_per_second;
        Self {
            max: (settings.max_in_flight / SHARE).max(1),
            rate: Rate { each_second, burst: each_second },
            addresses: Mutex::default(),
        }
    }

    /// Admits a delivery of an address.
    pub(in crate::http) fn admit(&self, address: IpAddr, now_us: u64) -> Result<HookTurn, Problem> {
        let mut addresses = self.addresses.lock();
        if addresses.len() >= ADDRESSES_MAX {
            let rests =
                |address: &Arc<Address>| Arc::strong_count(address) == 1 && address.bucket.is_full(now_us);
            addresses.retain(|_, address| !rests(address));
        }
        let address = addresses.entry(network_of(address)).or_default();
        if Arc::strong_count(address) > self.max {
            let max = self.max;
            let detail =
                format!("the address has {max} deliveries in flight, a sixteenth of hooks.max_in_flight");
            return Err(Problem::new(Code::TooManyRequests, detail).with("limit", max));
        }
        address.bucket.take(self.rate, now_us).map_err(|wait| {
            let rate = self.rate.each_second;
            let detail = format!("an address may send {rate} deliveries a second (hooks.max_per_second)");
            Problem::new(Code::TooManyRequests, detail).with("limit", rate).retry_after(wait)
        })?;
        Ok(HookTurn { _address: address.clone() })
    }
}

/// The network that counts as one address: a client may have any address of its /64.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or_else(
            || {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            },
            IpAddr::V4,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(max_in_flight: usize, max_per_second: u32) -> HookAddresses {
        let secrets = std::collections::BTreeMap::new();
        HookAddresses::new(&config::Hooks { max_body_bytes: 1_024, max_in_flight, max_per_second, secrets })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_has_a_part_of_the_deliveries_in_flight() {
        let addresses = addresses(32, 1_000);
        let first = addresses.admit(ip("192.0.2.1"), 0).unwrap();
        let _second = addresses.admit(ip("::ffff:192.0.2.1"), 0).unwrap();
        assert!(addresses.admit(ip("192.0.2.1"), 0).is_err());
        assert!(addresses.admit(ip("192.0.2.2"), 0).is_ok());
        drop(first);
        assert!(addresses.admit(ip("192.0.2.1"), 0).is_ok());
    }

    #[test]
    fn one_network_has_one_rate() {
        let addresses = addresses(1_000, 2);
        for host in ["2001:db8::1", "2001:db8::2"] {
            assert!(addresses.admit(ip(host), 7).is_ok());
        }
        let problem = addresses.admit(ip("2001:db8::3"), 7).unwrap_err();
        assert!(problem.wait().is_some_and(|wait| !wait.is_zero()));
        assert!(addresses.admit(ip("2001:db8:0:1::3"), 7).is_ok());
        assert!(addresses.admit(ip("2001:db8::3"), 1_000_000).is_ok());
    }

    #[test]
    fn addresses_that_rest_are_forgotten() {
        let addresses = addresses(1_000, 1);
        let _kept = addresses.admit(ip("192.0.2.1"), 0).unwrap();
        for number in (0..).take(ADDRESSES_MAX) {
            let _done = addresses.admit(IpAddr::V4(std::net::Ipv4Addr::from_bits(number)), 0);
        }
        let now_us = 10_000_000;
        let _later = addresses.admit(ip("203.0.113.1"), now_us).unwrap();
        assert_eq!(addresses.addresses.lock().len(), 2, "the one in flight, and the new one");
    }
}
