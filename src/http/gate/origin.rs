//! The origin and host check, which protects a server from foreign web pages.
//!
//! A request that a foreign page causes carries a foreign `Origin` or `Referer`, `Sec-Fetch-Site: cross-site`, or (by
//! DNS rebinding) a foreign `Host`. `Host` is checked only where this protects the server: without tokens. The check
//! also limits the size of a request's head.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Uri, Version};
use deltaq_engine::excerpt::Excerpt;

use crate::http::head::Head;
use crate::http::problem::{Code, Problem};

/// Maximum length of a URI in bytes. It allows for a percent-encoded key of 1,024 bytes and the rest of a path and
/// query.
pub(in crate::http) const URI_BYTES_MAX: usize = 8_192;

/// The hosts and origins that the settings allow in addition to the server's own.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Allowed<'s> {
    /// `None` allows every host.
    pub(in crate::http) hosts: Option<&'s [String]>,
    pub(in crate::http) origins: &'s [String],
}

impl Allowed<'_> {
    fn host(self, authority: &str) -> bool {
        let Some(hosts) = self.hosts else { return true };
        host_name(authority)
            .is_some_and(|name| is_own_host(name) || hosts.iter().any(|pattern| matches_host(pattern, name)))
    }

    fn origin(self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }
}

/// Refuses a head that is too large.
pub(in crate::http) fn check_head(uri: &Uri, head: &Head<'_>, bytes_max: usize) -> Result<(), Problem> {
    let uri = uri.path_and_query().map_or(0, |uri| uri.as_str().len());
    if uri > URI_BYTES_MAX {
        let detail = format!("the URI has {uri} bytes, and at most {URI_BYTES_MAX} are allowed");
        return Err(Problem::new(Code::UriTooLong, detail).with("limit", URI_BYTES_MAX));
    }
    let (bytes, limit) = (head.bytes, bytes_max);
    if bytes > limit {
        let detail = format!("the headers have {bytes} bytes; server.max_header_bytes is {limit}");
        return Err(Problem::new(Code::HeadersTooLarge, detail).with("limit", limit));
    }
    Ok(())
}

/// Refuses a request that was caused by a foreign web page. `is_sent` is false for a request without a connection, in
/// tests of the router.
pub(in crate::http) fn check_site(
    request: &Request,
    head: &Head<'_>,
    is_sent: bool,
    allowed: Allowed<'_>,
) -> Result<(), Problem> {
    let host = check_host(request, head, is_sent, allowed)?;
    let refused = |detail: String| Err(Problem::new(Code::CrossSite, detail));
    let is_own = |origin: &str| {
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        host.is_some_and(|host| authority.eq_ignore_ascii_case(host))
    };
    if let Some(origin) = head.origin.first.map(text) {
        if head.origin.is_repeated {
            return refused("the header origin occurs twice".to_owned());
        }
        if allowed.origin(origin) {
            return Ok(());
        }
        if !is_own(origin) {
            let detail = format!("a web page of the origin {} sent this", Excerpt(origin));
            return refused(detail)
                .map_err(|problem| problem.hint("server.allowed_origins can allow that origin"));
        }
    }
    // This is a link to this server from another site. GET changes nothing, and the foreign page can't read the
    // response.
    if head.is_navigation && request.method() == Method::GET && head.origin.first.is_none() {
        return Ok(());
    }
    if head.is_cross_site {
        return refused("Sec-Fetch-Site is cross-site: a foreign web page sent this".to_owned());
    }
    if head.origin.first.is_none()
        && let Some(referer) = head.referer.first.map(text)
    {
        let origin = origin_of(referer);
        if !is_own(origin) && !allowed.origin(origin) {
            return refused(format!(
                "the referer is of the origin {}: a foreign web page sent this",
                Excerpt(origin)
            ));
        }
    }
    Ok(())
}

/// The host that the request names. It must be one of this server.
fn check_host<'r>(
    request: &'r Request,
    head: &Head<'r>,
    is_sent: bool,
    allowed: Allowed<'_>,
) -> Result<Option<&'r str>, Problem> {
    let named = head.host.first.map(text);
    if head.host.is_repeated {
        return Err(Problem::new(Code::InvalidRequest, "the header host occurs twice"));
    }
    let host = request.uri().authority().map(Authority::as_str).or(named);
    let is_named = match request.version() {
        // RFC 9112, 3.2.
        Version::HTTP_11 => named.is_some(),
        // RFC 9113, 8.3.1: the host is in `:authority`, unless a proxy has translated a request of HTTP/1.1.
        Version::HTTP_2 => host.is_some(),
        _ => true,
    };
    if is_sent && !is_named {
        return Err(Problem::new(Code::InvalidRequest, "the header host is missing"));
    }
    if let Some(host) = host.filter(|host| !allowed.host(host)) {
        let detail = format!(
            "the host {} is not allowed: without tokens, this server takes requests only for localhost, IP addresses and the \
             hosts of the setting server.allowed_hosts",
            Excerpt(host)
        );
        let hint = "add the host to server.allowed_hosts (DELTAQ_SERVER__ALLOWED_HOSTS)";
        return Err(Problem::new(Code::HostNotAllowed, detail).hint(hint));
    }
    Ok(host)
}

/// The origin of a URL: everything before its path.
fn origin_of(url: &str) -> &str {
    let authority = url.find("://").map_or(url.len(), |scheme| scheme + "://".len());
    let end = url.get(authority..).and_then(|rest| rest.find(['/', '?', '#']));
    end.and_then(|end| url.get(..authority + end)).unwrap_or(url)
}

fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("\u{fffd}")
}

/// The host of an authority `host[:port]`; `None` if the authority has any other form.
pub(in crate::http) fn host_name(authority: &str) -> Option<&str> {
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (name, rest) = authority.split_at_checked(end)?;
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port)).then_some(name)
}

/// Whether an entry of `server.allowed_hosts` allows the name: `*` allows every name, `*.domain` the names below the domain.
fn matches_host(pattern: &str, name: &str) -> bool {
    let Some(suffix) = pattern.strip_prefix('*') else { return pattern.eq_ignore_ascii_case(name) };
    let end = name.len().checked_sub(suffix.len()).and_then(|begin| name.split_at_checked(begin));
    end.is_some_and(|(label, end)| {
        end.eq_ignore_ascii_case(suffix) && (!label.is_empty() || suffix.is_empty())
    })
}

/// An IP literal is safe: DNS rebinding makes a name resolve to this server, but can't put an address into `Host`.
fn is_own_host(name: &str) -> bool {
    let is_address = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    is_address || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn verdict(headers: &[(&'static str, &str)]) -> bool {
        verdict_of(Method::GET, headers)
    }

    fn verdict_of(method: Method, headers: &[(&'static str, &str)]) -> bool {
        let mut request = Request::builder().method(method).uri("/v1/info");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let head = Head::of(request.headers());
        let (hosts, origins) = (["queue.example".to_owned()], ["https://console.example".to_owned()]);
        check_site(&request, &head, false, Allowed { hosts: Some(&hosts), origins: &origins }).is_ok()
    }

    #[test]
    fn an_entry_with_an_asterisk_allows_many_hosts() {
        for (pattern, name, allowed) in [
            ("*", "deltaq", true),
            ("*", "a.b", true),
            ("*.example", "a.example", true),
            ("*.example", "a.b.EXAMPLE", true),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*.example", "a.example.evil", false),
            ("*.example", "evilexample", false),
            ("deltaq", "deltaq", true),
            ("deltaq", "a.deltaq", false),
        ] {
            assert_eq!(matches_host(pattern, name), allowed, "{pattern} {name}");
        }
    }

    #[test]
    fn without_the_host_check_foreign_pages_are_still_refused() {
        let verdict = |headers: [(&str, &str); 2]| {
            let mut request = Request::builder().uri("/v1/info");
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let request = request.body(Body::empty()).unwrap();
            let head = Head::of(request.headers());
            check_site(&request, &head, true, Allowed { hosts: None, origins: &[] }).is_ok()
        };
        assert!(verdict([("host", "deltaq:7070"), ("origin", "http://deltaq:7070")]));
        assert!(!verdict([("host", "deltaq:7070"), ("origin", "http://evil.example")]));
        assert!(!verdict([("host", "deltaq:7070"), ("sec-fetch-site", "cross-site")]));
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

    #[test]
    fn a_foreign_referer_is_refused_where_there_is_no_origin() {
        let host = ("host", "localhost:7070");
        assert!(verdict(&[host, ("referer", "http://localhost:7070/v1/info?x=http://evil.example")]));
        assert!(verdict(&[host, ("referer", "https://console.example/page")]));
        for referer in [
            "http://evil.example/",
            "http://evil.example",
            "http://evil.example?http://localhost:7070/",
            "http://localhost:8080/",
            "http://localhost:7070@evil.example/",
            "localhost:7070",
            "",
        ] {
            assert!(!verdict(&[host, ("referer", referer)]), "{referer}");
        }
    }

    #[test]
    fn an_allowed_origin_passes_although_it_is_cross_site() {
        let host = ("host", "localhost:7070");
        let cross_site = ("sec-fetch-site", "cross-site");
        assert!(verdict_of(Method::POST, &[host, cross_site, ("origin", "https://console.example")]));
        assert!(!verdict_of(Method::POST, &[host, cross_site, ("origin", "http://console.example")]));
        assert!(!verdict_of(
            Method::POST,
            &[("host", "evil.example"), ("origin", "https://console.example")]
        ));
    }

    #[test]
    fn a_link_from_another_site_can_be_followed() {
        let link = [
            ("host", "localhost:7070"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("referer", "https://evil.example/"),
        ];
        assert!(verdict(&link));
        assert!(!verdict_of(Method::POST, &link), "a form of a foreign page");
        let with_origin: Vec<_> = link.into_iter().chain([("origin", "https://evil.example")]).collect();
        assert!(!verdict(&with_origin));
        let rebound: Vec<_> =
            [("host", "evil.example")].into_iter().chain(link.into_iter().skip(1)).collect();
        assert!(!verdict(&rebound));
    }
}
