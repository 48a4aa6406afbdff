//! Checks of single settings of the server, in addition to those in `deltaq_types::range`.

use std::net::{IpAddr, Ipv6Addr};

pub(super) use deltaq_types::range::*;
use ipnet::IpNet;
use serde::de::Deserializer;

/// The URL of a plain HTTP endpoint, with a host and without credentials.
pub(super) fn http_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, "a URL such as \"http://localhost:4318/v1/traces\"", |text| {
        let authority = text.strip_prefix("http://")?.split('/').next()?;
        let is_url = !authority.is_empty() && !authority.contains('@');
        (is_url && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| Some(text.to_owned()))
    })
}

/// The name of a node.
pub(super) fn node_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    text(deserializer, "a name of 1 to 63 characters of a-z, 0-9, . and -", |name| {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-');
        ((1..=63).contains(&name.len()) && name.bytes().all(is_allowed)).then(|| Some(name.to_owned()))
    })
}

/// The URL of a node: scheme, host and port. The result has no trailing slash.
pub(super) fn node_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected =
        "a URL without user and path, such as \"http://10.0.0.1:7070\" or \"https://a.example:7070\"";
    text(deserializer, expected, |url| {
        let url = url.strip_suffix('/').unwrap_or(url);
        is_authority(without_scheme(url)?).then(|| Some(url.to_owned()))
    })
}

/// Origins of senders of CloudEvents: names, or `*`.
pub(super) fn event_origins<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = "names of origins, such as \"eventgrid.azure.net\", a list of them or \"*\"";
    let is_origin = |text: &String| {
        (1..=253).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
    };
    words(deserializer, expected, |text| is_origin(&text).then_some(text))
}

/// The URL of an HTTP proxy: scheme, host and port.
pub(super) fn proxy<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = "a URL without user and path, such as \"http://proxy.internal:3128\"";
    text(deserializer, expected, |url| {
        let url = url.strip_suffix('/').unwrap_or(url);
        is_authority(url.strip_prefix("http://")?).then(|| Some(url.to_owned()))
    })
}

/// The URL of the server as its clients know it. A proxy may serve it below a path. The result has no trailing slash.
pub(super) fn public_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = "a URL without user, query and fragment, such as \"https://deltaq.example\" or \"https://example.com/deltaq\"";
    text(deserializer, expected, |url| {
        let url = url.strip_suffix('/').unwrap_or(url);
        let (authority, path) = without_scheme(url)?.split_once('/').unwrap_or((without_scheme(url)?, ""));
        let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte);
        (is_authority(authority) && path.bytes().all(is_of_path)).then(|| Some(url.to_owned()))
    })
}

pub(super) fn link<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let expected = "a URL that begins with http:// or https://, such as \"https://grafana.example/d/deltaq?var-queue={queue}\"";
    text(deserializer, expected, |url| {
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`|".contains(&byte));
        let rest = without_scheme(url)?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        (is_plain && is_authority(authority)).then(|| Some(url.to_owned()))
    })
}

fn without_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))
}

/// Whether this is a host, with or without a port.
fn is_authority(text: &str) -> bool {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) => is_host(host),
        _ => is_host(text),
    }
}

/// Host names without port, IPv6 addresses in brackets, `*` and `*.domain`.
pub(super) fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected =
        "host names without port, such as \"deltaq.example\", [\"deltaq\", \"*.example\"] or \"*\"";
    words(deserializer, expected, |host| {
        let name = host.strip_prefix("*.").unwrap_or(&host);
        (host == "*" || is_host(name)).then_some(host)
    })
}

/// Origins as browsers send them: a scheme, a host, and a port unless it is the default of the scheme.
pub(super) fn origins<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let is_origin = |text: &str| {
        let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        authority.is_some_and(|authority| !authority.is_empty() && authority.bytes().all(is_allowed))
    };
    let expected = "origins, such as \"https://console.example\" or a list of them";
    words(deserializer, expected, |text| is_origin(&text).then_some(text))
}

/// Destinations of pushed requests: a scheme, a host and a port. `push` parses them.
pub(super) fn destinations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let expected = "destinations, such as \"https://*.shop.example\" or a list of them";
    words(deserializer, expected, |text| without_scheme(&text).is_some().then_some(text))
}

/// Networks such as `10.0.0.0/8`, and single addresses.
pub(super) fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let read = |text: String| text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok();
    words(deserializer, "IP addresses or networks, such as \"10.0.0.0/8\" or a list of them", read)
}

fn is_host(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        rest.strip_suffix(']').is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
    } else {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        (1..=253).contains(&text.len()) && text.bytes().all(is_allowed)
    }
}
