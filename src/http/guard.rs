//! Looks at the head of a request before anything else does.
//!
//! It bounds the head, and keeps foreign web pages away from a server on loopback: their requests carry a foreign `Origin`,
//! `Sec-Fetch-Site: cross-site`, or (by DNS rebinding) a `Host` that is not this server's.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::{Code, Problem};
use super::state::AppState;

/// Longest URI, in bytes: a key of 1,024 bytes, percent-encoded, with room for the rest.
const URI_BYTES_MAX: usize = 8_192;

/// Refuses a head that is too large.
pub(super) async fn check_head(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let uri = request.uri().path_and_query().map_or(0, |uri| uri.as_str().len());
    if uri > URI_BYTES_MAX {
        let detail = format!("the URI has {uri} bytes, and at most {URI_BYTES_MAX} are allowed");
        return Problem::new(Code::UriTooLong, detail).with("limit", URI_BYTES_MAX).into_response();
    }
    let headers = request.headers().iter();
    let bytes: usize = headers.map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    let limit = state.limits.max_header_bytes;
    if bytes > limit {
        let detail = format!("the headers have {bytes} bytes; server.max_header_bytes is {limit}");
        return Problem::new(Code::HeadersTooLarge, detail).with("limit", limit).into_response();
    }
    next.run(request).await
}

/// Refuses calls on queues until all queues are loaded.
pub(super) async fn recovered(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if !state.registry.is_ready() && request.uri().path().starts_with("/v1/queues") {
        return Problem::recovering(state.registry.progress()).into_response();
    }
    next.run(request).await
}

/// Refuses what a foreign web page sent.
pub(super) async fn same_site(State(state): State<AppState>, request: Request, next: Next) -> Response {
    match check(request.headers(), request.uri(), &state.limits.allowed_hosts) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check(headers: &HeaderMap, uri: &Uri, allowed: &[String]) -> Result<(), Problem> {
    let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    let host = uri.authority().map(axum::http::uri::Authority::as_str).or_else(|| text(header::HOST));
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(Problem::new(Code::InvalidRequest, "the header host stands twice"));
    }
    if let Some(host) = host
        && !is_own(host_name(host), allowed)
    {
        let detail = format!("the host {host:?} is not this server's; server.allowed_hosts can name it");
        return Err(Problem::new(Code::CrossSite, detail));
    }
    if headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site") {
        return Err(Problem::new(
            Code::CrossSite,
            "Sec-Fetch-Site is cross-site: a foreign web page sent this",
        ));
    }
    if let Some(origin) = text(header::ORIGIN) {
        let from = origin.split_once("://").map_or("", |(_, authority)| authority);
        if host.is_none_or(|host| !from.eq_ignore_ascii_case(host)) {
            let detail = format!("the origin {origin:?} is not this server: a foreign web page sent this");
            return Err(Problem::new(Code::CrossSite, detail));
        }
    }
    Ok(())
}

/// An authority without its port.
fn host_name(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.split_inclusive(']').next().unwrap_or(authority);
    }
    authority.rsplit_once(':').map_or(authority, |(name, _)| name)
}

/// A web page can't have an address of its choice resolved to an IP literal, so those are safe.
fn is_own(name: &str, allowed: &[String]) -> bool {
    let plain = name.trim_start_matches('[').trim_end_matches(']');
    plain.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || allowed.iter().any(|host| host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(headers: &[(&'static str, &str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("header"));
        }
        check(&map, &Uri::from_static("/v1/info"), &["queue.example".to_owned()]).is_ok()
    }

    #[test]
    fn own_hosts_pass_and_foreign_ones_do_not() {
        for host in
            ["localhost:7070", "127.0.0.1:7070", "[::1]:7070", "10.0.0.7", "queue.example:80", "LOCALHOST"]
        {
            assert!(verdict(&[("host", host)]), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:7070", ""] {
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
    }
}
