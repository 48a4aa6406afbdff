//! Which addresses are global, so that a request to them can't reach a service of the server's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), length)
}

const fn v6(a: u16, b: u16, length: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), length)
}

/// The IPv4 networks that are not global: those of the IANA registry of special addresses, multicast, and what is reserved.
const SPECIAL_V4: [Ipv4Net; 17] = [
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    // The inner address of the platform of Azure.
    v4(168, 63, 129, 24),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 31, 196, 24),
    v4(192, 52, 193, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 3),
];
/// The IPv6 network of which addresses are assigned. All others are special, such as loopback, link-local and NAT64 addresses.
const ASSIGNED_V6: Ipv6Net = v6(0x2000, 0, 3);
/// The special networks in it: protocols and Teredo, documentation, 6to4, documentation.
const SPECIAL_V6: [Ipv6Net; 4] =
    [v6(0x2001, 0, 23), v6(0x2001, 0x0db8, 32), v6(0x2002, 0, 16), v6(0x3fff, 0, 20)];

/// Whether a request may go to the address: it is global, or in one of `networks`. An IPv4 address inside an IPv6 address counts as itself.
pub(super) fn is_permitted(address: IpAddr, networks: &[IpNet]) -> bool {
    let address = address.to_canonical();
    is_global(address) || networks.iter().any(|network| network.contains(&address))
}

fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|network| network.contains(&address)),
        IpAddr::V6(address) => {
            ASSIGNED_V6.contains(&address) && !SPECIAL_V6.iter().any(|network| network.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_permitted(text: &str, networks: &[&str]) -> bool {
        let networks: Vec<IpNet> = networks.iter().map(|network| network.parse().unwrap()).collect();
        super::is_permitted(text.parse().unwrap(), &networks)
    }

    #[test]
    fn only_global_addresses_are_permitted() {
        for global in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:200::1",
            "2a00:1450::1",
            "3ffe::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_permitted(global, &[]), "{global}");
        }
        for special in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_permitted(special, &[]), "{special}");
        }
    }

    #[test]
    fn a_network_permits_its_addresses_and_no_others() {
        assert!(is_permitted("10.1.2.3", &["10.0.0.0/8"]));
        assert!(is_permitted("::ffff:10.1.2.3", &["10.0.0.0/8"]));
        assert!(is_permitted("fd00::1", &["10.0.0.0/8", "fd00::/8"]));
        assert!(!is_permitted("10.1.2.3", &["10.0.0.0/16"]));
        assert!(!is_permitted("127.0.0.1", &["10.0.0.0/8"]));
        assert!(
            !is_permitted("64:ff9b::a01:203", &["10.0.0.0/8"]),
            "a translated address is not in the network"
        );
    }
}
