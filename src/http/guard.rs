//! Looks at the head of a request before anything else does.
//!
//! It bounds the head, and keeps foreign web pages away from a server on loopback: their requests carry a foreign `Origin`,
//! `Sec-Fetch-Site: cross-site`, or (by DNS rebinding) a `Host` that is not this server's.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Uri, Version};

use super::head::Head;
use super::problem::{Code, Problem};
use super::state::{AppState, HttpLimits};

/// Longest URI, in bytes: a key of 1,024 bytes, percent-encoded, with room for the rest.
const URI_BYTES_MAX: usize = 8_192;

/// Refuses a head that is too large.
pub(super) fn check_head(uri: &Uri, head: &Head<'_>, limits: &HttpLimits) -> Result<(), Problem> {
    let uri = uri.path_and_query().map_or(0, |uri| uri.as_str().len());
    if uri > URI_BYTES_MAX {
        let detail = format!("the URI has {uri} bytes, and at most {URI_BYTES_MAX} are allowed");
        return Err(Problem::new(Code::UriTooLong, detail).with("limit", URI_BYTES_MAX));
    }
    let (bytes, limit) = (head.bytes, limits.max_header_bytes);
    if bytes > limit {
        let detail = format!("the headers have {bytes} bytes; server.max_header_bytes is {limit}");
        return Err(Problem::new(Code::HeadersTooLarge, detail).with("limit", limit));
    }
    Ok(())
}

/// Refuses calls on queues until all queues are loaded.
pub(super) fn check_recovered(state: &AppState, uri: &Uri) -> Result<(), Problem> {
    if !state.registry.is_ready() && uri.path().starts_with("/v1/queues") {
        return Err(Problem::recovering(state.registry.progress()));
    }
    Ok(())
}

/// Refuses what a foreign web page sent. `is_sent` is whether it came over a connection.
pub(super) fn check_site(
    request: &Request,
    head: &Head<'_>,
    is_sent: bool,
    allowed: &[String],
) -> Result<(), Problem> {
    let named = head.host.first.map(text);
    if head.host.stands_twice {
        return Err(Problem::new(Code::InvalidRequest, "the header host stands twice"));
    }
    // RFC 9112, 3.2. What comes over no connection is a test's.
    if named.is_none() && is_sent && request.version() == Version::HTTP_11 {
        return Err(Problem::new(Code::InvalidRequest, "the header host is not there"));
    }
    let host = request.uri().authority().map(Authority::as_str).or(named);
    if let Some(host) = host
        && !host_name(host).is_some_and(|name| is_own(name, allowed))
    {
        let detail = format!("the host {host:?} is not this server's; server.allowed_hosts can name it");
        return Err(Problem::new(Code::CrossSite, detail));
    }
    if head.is_cross_site {
        return Err(Problem::new(
            Code::CrossSite,
            "Sec-Fetch-Site is cross-site: a foreign web page sent this",
        ));
    }
    if let Some(origin) = head.origin.first.map(text) {
        let from = origin.split_once("://").map_or("", |(_, authority)| authority);
        if host.is_none_or(|host| !from.eq_ignore_ascii_case(host)) {
            let detail = format!("the origin {origin:?} is not this server: a foreign web page sent this");
            return Err(Problem::new(Code::CrossSite, detail));
        }
        if head.origin.stands_twice {
            return Err(Problem::new(Code::CrossSite, "the header origin stands twice"));
        }
    }
    Ok(())
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("\u{fffd}")
}

/// An authority without its port; `None` if it is anything but a host and digits.
fn host_name(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (name, rest) = authority.split_at_checked(end)?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// A web page can't have an address of its choice resolved to an IP literal, so those are safe.
fn is_own(name: &str, allowed: &[String]) -> bool {
    let is_address = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    is_address
        || name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|host| host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn verdict(headers: &[(&'static str, &str)]) -> bool {
        let mut request = Request::builder().uri("/v1/info");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let head = Head::of(request.headers());
        check_site(&request, &head, false, &["queue.example".to_owned()]).is_ok()
    }

    #[test]
    fn own_hosts_pass_and_foreign_ones_do_not() {
        for host in
            ["localhost:7070", "127.0.0.1:7070", "[::1]:7070", "10.0.0.7", "queue.example:80", "LOCALHOST"]
        {
            assert!(verdict(&[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7070",
            "",
            "127.0.0.1:x@evil.example",
            "127.0.0.1:7070@evil.example",
            "127.0.0.1@evil.example",
            "[::1]@evil.example",
            "[::1].evil.example",
            "[::1",
            "[127.0.0.1]",
            "localhost:7070:7070",
            "localhost:+7",
            "localhost/",
        ] {
            assert!(!verdict(&[("host", host)]), "{host}");
        }
    }

    #[test]
    fn foreign_pages_are_refused() {
        assert!(verdict(&[("host", "localhost:7070"), ("origin", "http://localhost:7070")]));
        assert!(!verdict(&[("host", "localhost:7070"), ("origin", "http://localhost:8080")]));
        assert!(!verdict(&[("host", "localhost:7070"), ("origin", "null")]));
        assert!(!verdict(&[("host", "localhost:7070"), ("sec-fetch-site", "cross-site")]));
        assert!(verdict(&[("host", "localhost:7070"), ("sec-fetch-site", "same-origin")]));
        assert!(!verdict(&[("host", "localhost:7070"), ("sec-fetch-site", "Cross-Site")]));
        let own = ("origin", "http://localhost:7070");
        assert!(!verdict(&[("host", "localhost:7070"), own, ("origin", "http://evil.example")]));
    }
}
