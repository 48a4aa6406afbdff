//! What the server's settings permit: URLs, addresses, and which queue may use which secret.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use deltaq_types::{PUSH_HEADER_BYTES_MAX, Push, PushHeader};
use ipnet::IpNet;
use reqwest::Url;
use serde_json::Value;

use super::address::is_permitted;
use super::destination::Destination;
use crate::config;
use crate::secrets::{Secret, Secrets, Unusable, Use};

/// What the server's settings permit. The debug text shows no secret.
#[derive(Debug, Default)]
pub struct Policy {
    allow: Vec<Destination>,
    pub(super) networks: Vec<IpNet>,
    /// The URL of the proxy.
    pub(super) proxy: Option<Uri>,
    secrets: Secrets,
}

/// Why the settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A destination is none.
    #[error(
        "push.allow has {text:?}, which is no destination; it is like \"https://*.shop.example\" or \"http://hooks.internal:8080\": \
         scheme, host and port, without a path"
    )]
    Destination {
        /// The text.
        text: String,
    },
    /// `push.proxy` is not the URL of a proxy.
    #[error("push.proxy is {text:?}, which is no URL of a proxy")]
    Proxy {
        /// The text.
        text: String,
    },
    /// The secrets can't be used.
    #[error(transparent)]
    Secrets(#[from] Unusable),
}

/// Why a queue may not push to a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The member of the setting `push`.
    pub member: &'static str,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: &'static str,
}

/// An endpoint that a queue may push to, with the secrets that sign its requests.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(super) uri: Uri,
    pub(super) secrets: Vec<Secret>,
    /// The headers that the queue adds.
    pub(super) headers: HeaderMap,
    /// The secrets in these headers.
    shown: Vec<Secret>,
    /// The origin that asks for a permission.
    pub(super) origin: Option<String>,
}

impl Endpoint {
    /// A text of the endpoint without the secrets of the headers.
    pub(super) fn hide(&self, text: String) -> String {
        self.shown.iter().filter_map(|secret| secret.lines().next()).fold(text, |text, secret| {
            let escaped = Value::from(secret).to_string();
            text.replace(secret, "***").replace(escaped.trim_matches('"'), "***")
        })
    }
}

impl Policy {
    /// Reads the settings and the files of the secrets.
    ///
    /// # Errors
    /// [`Error`] names the setting.
    pub fn read(settings: &config::Push) -> Result<Self, Error> {
        let destination =
            |text: &String| Destination::parse(text).ok_or_else(|| Error::Destination { text: text.clone() });
        let secrets = Secrets::read(Use::Push, &settings.secrets)?;
        let proxy = |text: &String| text.parse().map_err(|_| Error::Proxy { text: text.clone() });
        let proxy = settings.proxy.as_ref().map(proxy).transpose()?;
        let allow = settings.allow.iter().map(destination).collect::<Result<_, _>>()?;
        Ok(Self { allow, networks: settings.allow_networks.clone(), proxy, secrets })
    }

    /// Whether requests to a permitted destination may use TLS.
    pub(super) fn has_encrypted(&self) -> bool {
        self.allow.iter().any(Destination::is_encrypted)
    }

    /// The endpoint of a queue, if the queue may push to it.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn endpoint(&self, queue: &str, push: &Push) -> Result<Endpoint, Refusal> {
        let uri = self.uri(&push.url)?;
        let secrets = push.secrets.iter().map(|name| self.secret(queue, name)).collect::<Result<_, _>>()?;
        let (mut headers, mut shown) = (HeaderMap::new(), Vec::new());
        let (mut bytes, refused) =
            (0, |why: &str, hint| Refusal { member: "headers", why: why.to_owned(), hint });
        for (name, value) in &push.headers {
            let text = match value {
                PushHeader::Text(text) => text.clone(),
                PushHeader::Secret { secret, prefix } => {
                    let found = self.secrets.of_header(queue, secret).cloned();
                    let secret = found.ok_or_else(|| Refusal {
                        member: "headers",
                        why: format!("this server has no secret {secret:?} that the queue may send in a header"),
                        hint: "the operator adds it as [push.secrets.NAME], with file, queues and headers = true, and restarts the server",
                    })?;
                    let text = format!("{prefix}{}", secret.lines().next().unwrap_or_default());
                    shown.push(secret);
                    text
                }
            };
            bytes += name.len() + text.len();
            let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(&text).ok());
            let (name, mut header) =
                parsed.ok_or_else(|| refused("a name or a value is none of a header", "correct it"))?;
            header.set_sensitive(matches!(value, PushHeader::Secret { .. }));
            headers.insert(name, header);
        }
        if bytes > PUSH_HEADER_BYTES_MAX {
            let why = format!(
                "with the secrets they have {bytes} bytes, and at most {PUSH_HEADER_BYTES_MAX} are sent"
            );
            return Err(refused(&why, "use fewer or shorter ones"));
        }
        Ok(Endpoint { uri, secrets, headers, shown, origin: push.handshake.clone() })
    }

    fn secret(&self, queue: &str, name: &str) -> Result<Secret, Refusal> {
        self.secrets.of(queue, name).cloned().ok_or_else(|| Refusal {
            member: "secrets",
            why: format!("this server has no secret {name:?} that the queue may use"),
            hint: "the operator adds it as [push.secrets.NAME], with file and queues, and restarts the server",
        })
    }

    fn uri(&self, text: &str) -> Result<Uri, Refusal> {
        let refusal = |why: &str, hint| Refusal { member: "url", why: why.to_owned(), hint };
        if self.allow.is_empty() {
            let why = "this server pushes nowhere, because its setting push.allow is empty";
            return Err(refusal(
                why,
                "the operator sets push.allow, such as [\"https://*.shop.example\"], and restarts the server",
            ));
        }
        let url = Url::parse(text).map_err(|error| {
            refusal(&format!("it is no URL: {error}"), "it is like \"https://shop.example/hooks\"")
        })?;
        if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
            let why = "it has a user, a password or a fragment";
            return Err(refusal(why, "leave them out; the secrets sign the requests"));
        }
        let host = url.host_str().unwrap_or_default();
        if host.ends_with('.') {
            return Err(refusal("its host ends with a dot", "leave the dot out"));
        }
        if !self.allow.iter().any(|destination| destination.has(&url)) {
            let why = "the server's setting push.allow does not permit its scheme, host and port";
            return Err(refusal(
                why,
                "the operator adds the destination to push.allow and restarts the server",
            ));
        }
        // The resolver of the sender checks the addresses of names.
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if literal.is_ok_and(|address| !is_permitted(address, &self.networks)) {
            let why = "its address is not global, and not in the server's setting push.allow_networks";
            return Err(refusal(
                why,
                "the operator adds the network to push.allow_networks and restarts the server",
            ));
        }
        Uri::try_from(url.as_str()).map_err(|error| {
            refusal(&format!("it can't be sent: {error}"), "percent-encode its path and query")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn policy(allow: &[&str], networks: &[&str]) -> Policy {
        let settings = config::Push {
            allow: allow.iter().map(|text| (*text).to_owned()).collect(),
            allow_networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
            proxy: None,
            secrets: BTreeMap::new(),
        };
        Policy::read(&settings).unwrap()
    }

    /// Spellings of addresses and URLs by which a request might reach what it must not.
    const FORBIDDEN: [&str; 58] = [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.0.0.1/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://0177.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://0.0.0.0/",
        "http://0/",
        "http://0x0/",
        "http://00000/",
        "http://169.254.169.254/latest/meta-data/",
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0251.0376.0251.0376/",
        "http://169.16689662/",
        "http://10.0.0.1/",
        "http://167772161/",
        "http://172.16.0.1/",
        "http://192.168.0.1/",
        "http://3232235521/",
        "http://100.64.0.1/",
        "http://192.0.0.192/",
        "http://[::]/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://[2001:0:7f00:1::]/",
        "http://[fe80::1]/",
        "http://[fc00::1]/",
        "http://[fd00:ec2::254]/",
        "http://[ff02::1]/",
        "http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/",
        "http://\u{2460}\u{2461}\u{2466}.0.0.1/",
        "http://127\u{3002}0\u{3002}0\u{3002}1/",
        "http://%31%32%37.0.0.1/",
        "http://shop.example@127.0.0.1/",
        "http://shop.example:80@127.0.0.1/",
        "http://user@shop.example/",
        "http://:pass@shop.example/",
        "http://shop.example#@127.0.0.1/",
        "http://shop.example./",
        "http://127.0.0.1\\@shop.example/",
        "http:\\\\127.0.0.1\\",
        "http:127.0.0.1",
        "http:///127.0.0.1/",
        "ftp://shop.example/",
    ];

    #[test]
    fn no_spelling_of_an_inner_address_is_permitted() {
        // The literals are listed as well, so that the address is all that refuses them.
        let listed = [
            "http://*",
            "http://*:*",
            "http://shop.example:*",
            "http://127.0.0.1",
            "http://[::1]",
            "http://0.0.0.0",
            "http://169.254.169.254",
            "http://10.0.0.1",
            "http://[::ffff:127.0.0.1]",
            "http://[64:ff9b::7f00:1]",
        ];
        for policy in [policy(&listed, &[]), policy(&["http://*:*"], &["127.0.0.0/8", "::1/128"])] {
            for url in FORBIDDEN {
                let refusal = policy.uri(url).expect_err(url);
                assert_eq!(refusal.member, "url");
            }
        }
    }

    #[test]
    fn a_permitted_url_is_a_permitted_destination_at_a_permitted_address() {
        let open = policy(&["http://127.0.0.1:*", "https://*.shop.example"], &["127.0.0.0/8"]);
        for good in ["http://127.0.0.1:9/a?b=c", "http://2130706433:9/", "https://a.shop.example/hooks"] {
            assert!(open.uri(good).is_ok(), "{good}");
        }
        for bad in ["http://127.0.0.2:9/", "http://a.shop.example/", "https://shop.example/"] {
            assert!(open.uri(bad).is_err(), "{bad}");
        }
        assert!(
            policy(&[], &[]).uri("https://a.shop.example/").unwrap_err().why.contains("push.allow is empty")
        );
    }
}
