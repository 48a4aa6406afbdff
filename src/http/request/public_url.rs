//! The URL of this server as the caller of a request knows it. The `type` of a problem begins with it.

use axum::extract::Request;
use axum::http::HeaderValue;

use crate::http::gate::origin::host_name;
use crate::http::head::Head;

/// What a request reveals about the URL of the server.
#[derive(Clone, Debug, Default)]
pub(in crate::http) struct Caller {
    is_tls: bool,
    /// The host that the request names.
    host: Option<HeaderValue>,
    /// The URL by which the client knows the node that forwarded the request.
    by_node: Option<HeaderValue>,
}

impl Caller {
    pub(in crate::http) fn of(request: &Request, head: &Head<'_>, is_tls: bool, is_from_node: bool) -> Self {
        let authority = request.uri().authority();
        let host = match authority {
            Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
            None => head.host.first.filter(|_| !head.host.is_repeated).cloned(),
        };
        let by_node = head.public_url.first.filter(|_| is_from_node && !head.public_url.is_repeated);
        Self { is_tls, host, by_node: by_node.cloned() }
    }

    /// The URL without a trailing slash. It is the URL of the node that the client called or, without such a node,
    /// the setting `server.public_url`. By default it is derived from the scheme and the host of the request. It is
    /// empty if none of these can be used.
    pub(in crate::http) fn url(&self, setting: Option<&str>) -> String {
        if let Some(url) = self.by_node.as_ref().and_then(|url| url.to_str().ok()).or(setting) {
            return url.to_owned();
        }
        let host = self.host.as_ref().and_then(|host| host.to_str().ok());
        let scheme = if self.is_tls { "https" } else { "http" };
        host.filter(|host| is_well_formed(host)).map_or(String::new(), |host| format!("{scheme}://{host}"))
    }
}

/// Whether this is a host with or without a port. A reply never repeats any other text of the header.
fn is_well_formed(authority: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    host_name(authority).is_some_and(|name| {
        match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !name.is_empty() && name.bytes().all(is_allowed),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(is_tls: bool, host: &str, by_node: Option<&'static str>, setting: Option<&str>) -> String {
        let host = HeaderValue::from_str(host).ok();
        Caller { is_tls, host, by_node: by_node.map(HeaderValue::from_static) }.url(setting)
    }

    #[test]
    fn the_nearest_to_the_client_names_the_server() {
        let (node, setting) = (Some("https://a.example/x"), Some("https://deltaq.example"));
        assert_eq!(url(false, "b:7070", node, setting), "https://a.example/x");
        assert_eq!(url(false, "b:7070", None, setting), "https://deltaq.example");
        assert_eq!(url(false, "b:7070", None, None), "http://b:7070");
        assert_eq!(url(true, "[::1]", None, None), "https://[::1]");
        assert_eq!(Caller::default().url(None), "");
    }

    #[test]
    fn a_malformed_host_is_never_repeated() {
        for host in
            ["", ":7070", "a b", "a/b", "user@a", "a:x", "<script>", "a\"b", "[::1", "[x]", "a?b", "a#b"]
        {
            assert_eq!(url(false, host, None, None), "", "{host}");
        }
    }
}
