//! The destinations that the operator permits: a scheme, a pattern of hosts, and a port.

use reqwest::Url;

use crate::access::Glob;

/// A permitted destination, such as `https://*.shop.example` or `http://127.0.0.1:*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    scheme: &'static str,
    hosts: Hosts,
    /// `None` for any port.
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    /// This host, as [`Url::host_str`] writes it.
    One(String),
    /// The host names that match. An IP address does not match, because its text says nothing about who has it.
    Names(Glob),
}

impl Destination {
    /// Parses a destination. Without a port, it is that of the scheme.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = match text.split_once("://")? {
            ("https", authority) => ("https", authority),
            ("http", authority) => ("http", authority),
            _ => return None,
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, "*")) => (host, None),
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            _ => (authority, Some(if scheme == "https" { 443 } else { 80 })),
        };
        let hosts = if host.contains('*') {
            Hosts::Names(Glob::parse(host)?)
        } else {
            // The same parser as for the URLs, so that each spelling of an address is the same address.
            let url = Url::parse(&format!("{scheme}://{host}/")).ok()?;
            let is_host_only = url.username().is_empty()
                && url.path() == "/"
                && url.query().is_none()
                && url.fragment().is_none();
            Hosts::One(url.host_str().filter(|_| is_host_only)?.to_owned())
        };
        Some(Self { scheme, hosts, port })
    }

    /// Whether the URL is at this destination.
    pub(super) fn has(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let has_host = match &self.hosts {
            Hosts::One(own) => own == host,
            Hosts::Names(names) => url.domain().is_some() && names.matches(host),
        };
        has_host
            && url.scheme() == self.scheme
            && self.port.is_none_or(|port| url.port_or_known_default() == Some(port))
    }

    /// Whether requests to it use TLS.
    pub(super) fn is_encrypted(&self) -> bool {
        self.scheme == "https"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(pattern: &str, url: &str) -> bool {
        Destination::parse(pattern).expect(pattern).has(&Url::parse(url).expect(url))
    }

    #[test]
    fn a_destination_has_its_scheme_hosts_and_port() {
        for (pattern, url) in [
            ("https://shop.example", "https://shop.example/a?b"),
            ("https://shop.example/", "https://SHOP.example:443/"),
            ("https://*.shop.example", "https://a.shop.example/"),
            ("https://*.shop.example", "https://a.b.shop.example/"),
            ("https://*", "https://anything.example/"),
            ("http://shop.example:8080", "http://shop.example:8080/"),
            ("http://shop.example:*", "http://shop.example:1/"),
            ("http://127.0.0.1:*", "http://2130706433:99/"),
            ("http://0x7f.1", "http://127.0.0.1/"),
            ("http://[::1]:7", "http://[0:0::1]:7/"),
        ] {
            assert!(has(pattern, url), "{pattern} {url}");
        }
        for (pattern, url) in [
            ("https://shop.example", "http://shop.example/"),
            ("https://shop.example", "https://shop.example:8443/"),
            ("https://shop.example", "https://a.shop.example/"),
            ("https://*.shop.example", "https://shop.example/"),
            ("https://*.shop.example", "https://shop.example.evil.example/"),
            ("https://*.shop.example", "https://a.shop.example@evil.example/"),
            ("https://*", "https://127.0.0.1/"),
            ("https://*", "https://[2606:4700::1]/"),
            ("https://*.1", "https://127.0.0.1/"),
        ] {
            assert!(!has(pattern, url), "{pattern} {url}");
        }
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        for text in [
            "",
            "shop.example",
            "ftp://a",
            "https://",
            "https://a/b",
            "https://u@a",
            "https://a:x",
            "https://a?b",
            "https://a:99999",
            "https://a b",
            "https://*@a",
            "https://a#b",
        ] {
            assert_eq!(Destination::parse(text), None, "{text}");
        }
    }
}
