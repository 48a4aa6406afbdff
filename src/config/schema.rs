//! Every setting by its path, with what it may be and whether it may be unset.
//!
//! The settings are also fields of structs; a test holds the two equal. What is here and not there is all that an error
//! message needs: the allowed range in words, and the list of known names.

use toml::Value;

use super::{access, document};
use crate::duration;

/// What switches off a setting that a lower layer has set: TOML has no null.
pub(super) const UNSET: &str = "unset";

/// Most characters of a value that a message shows.
const SHOWN_CHARS_MAX: usize = 200;

/// Stands for "no bound that matters" among durations: a hundred years.
const LONG: &str = "36500d";

/// A name that settings may contain: a value, or a table of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    /// `section.field`, with further dots for nested tables.
    pub(super) path: &'static str,
    /// Whether it may be absent.
    pub(super) optional: bool,
    pub(super) kind: Kind,
}

/// What a setting may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Other settings.
    Table,
    Bool,
    Integer(i64, i64),
    /// A finite number above the first (or at it, when the flag is set) and up to the second.
    Number {
        min: f64,
        min_allowed: bool,
        max: f64,
    },
    Duration(&'static str, &'static str),
    /// An IP address and a port; also nothing, when the flag is set.
    Address {
        or_empty: bool,
    },
    /// A list of host names without port.
    Hosts,
    /// A list of JSON pointers, each alone or as a table with `pointer` and `optional`.
    Pointers,
    Choice(&'static [&'static str]),
    /// A path in the file system.
    Path,
    /// A list of tokens.
    Tokens,
    /// The URL of a plain HTTP endpoint.
    HttpUrl,
}

const fn table(path: &'static str) -> Setting {
    Setting { path, optional: false, kind: Kind::Table }
}

const fn setting(path: &'static str, kind: Kind) -> Setting {
    Setting { path, optional: false, kind }
}

const fn optional(path: &'static str, kind: Kind) -> Setting {
    Setting { path, optional: true, kind }
}

/// All of them, in the order of the file.
pub(super) const SETTINGS: &[Setting] = &[
    table("server"),
    setting("server.listen", Kind::Address { or_empty: false }),
    setting("server.metrics_listen", Kind::Address { or_empty: true }),
    setting("server.allowed_hosts", Kind::Hosts),
    setting("server.drain_delay", Kind::Duration("0s", "1h")),
    setting("server.shutdown_timeout", Kind::Duration("0s", "1h")),
    setting("server.header_read_timeout", Kind::Duration("10ms", "1h")),
    setting("server.body_read_timeout", Kind::Duration("10ms", "1h")),
    setting("server.idle_timeout", Kind::Duration("10ms", "1d")),
    setting("server.max_header_bytes", Kind::Integer(8_192, 1 << 20)),
    setting("server.max_body_bytes", Kind::Integer(1_024, 16 << 30)),
    setting("server.request_timeout", Kind::Duration("10ms", "1d")),
    setting("server.max_wait", Kind::Duration("0s", "1h")),
    setting("server.max_connections", Kind::Integer(1, 1_000_000)),
    setting("server.max_reads_in_flight", Kind::Integer(2, 1_000_000)),
    setting("server.max_writes_in_flight", Kind::Integer(2, 1_000_000)),
    setting("server.max_lists_in_flight", Kind::Integer(2, 1_000_000)),
    setting("server.max_waits_in_flight", Kind::Integer(2, 1_000_000)),
    setting("server.max_body_bytes_in_flight", Kind::Integer(1_024, 1 << 40)),
    optional("server.tls_cert", Kind::Path),
    optional("server.tls_key", Kind::Path),
    optional("server.tls_client_ca", Kind::Path),
    table("queues"),
    setting("queues.auto_create", Kind::Bool),
    setting("queues.max_queues", Kind::Integer(1, 1_000_000)),
    setting("queues.max_waiters", Kind::Integer(1, 10_000_000)),
    setting("queues.max_batch", Kind::Integer(1, 10_000_000)),
    setting("queues.max_replace_objects", Kind::Integer(1, 1_000_000_000)),
    setting("queues.max_reply_bytes", Kind::Integer(1_024, 1 << 30)),
    table("queue_defaults"),
    setting("queue_defaults.mode", Kind::Choice(&["delta", "latest", "keys"])),
    setting("queue_defaults.key", Kind::Pointers),
    setting("queue_defaults.known_objects", Kind::Bool),
    setting("queue_defaults.emit_replaced", Kind::Bool),
    setting("queue_defaults.lease", Kind::Duration("1s", "12h")),
    setting("queue_defaults.max_failures", Kind::Integer(0, u32::MAX as i64)),
    optional("queue_defaults.resync_period", Kind::Duration("1s", LONG)),
    setting("queue_defaults.max_keys", Kind::Integer(1, 1_000_000_000)),
    setting("queue_defaults.max_object_bytes", Kind::Integer(2, 1 << 30)),
    setting("queue_defaults.max_deltas_per_key", Kind::Integer(2, 1_000_000_000)),
    setting("queue_defaults.max_bytes_per_key", Kind::Integer(1, 1 << 40)),
    optional("queue_defaults.max_delete_percent", Kind::Number { min: 0.0, min_allowed: true, max: 100.0 }),
    optional("queue_defaults.max_deletes", Kind::Integer(0, i64::MAX)),
    table("queue_defaults.rate_limiter"),
    setting("queue_defaults.rate_limiter.jitter", Kind::Number { min: 0.0, min_allowed: true, max: 1.0 }),
    optional("queue_defaults.rate_limiter.max_wait", Kind::Duration("0s", LONG)),
    optional("queue_defaults.rate_limiter.item_exponential", Kind::Table),
    setting("queue_defaults.rate_limiter.item_exponential.base", Kind::Duration("1us", LONG)),
    setting("queue_defaults.rate_limiter.item_exponential.max", Kind::Duration("1us", LONG)),
    optional("queue_defaults.rate_limiter.item_fast_slow", Kind::Table),
    setting("queue_defaults.rate_limiter.item_fast_slow.fast", Kind::Duration("0s", LONG)),
    setting("queue_defaults.rate_limiter.item_fast_slow.slow", Kind::Duration("0s", LONG)),
    setting("queue_defaults.rate_limiter.item_fast_slow.max_fast", Kind::Integer(0, u32::MAX as i64)),
    optional("queue_defaults.rate_limiter.bucket", Kind::Table),
    setting(
        "queue_defaults.rate_limiter.bucket.qps",
        Kind::Number { min: 0.0, min_allowed: false, max: 1e9 },
    ),
    setting("queue_defaults.rate_limiter.bucket.burst", Kind::Integer(1, u32::MAX as i64)),
    table("queue_defaults.retention"),
    optional("queue_defaults.retention.age", Kind::Duration("1s", LONG)),
    optional("queue_defaults.retention.bytes", Kind::Integer(0, i64::MAX)),
    table("storage"),
    setting("storage.data_dir", Kind::Path),
    setting("storage.in_memory", Kind::Bool),
    setting("storage.sync", Kind::Choice(&["full", "normal"])),
    table("access"),
    optional("access.tokens_file", Kind::Path),
    setting("access.tokens", Kind::Tokens),
    setting("access.insecure", Kind::Bool),
    table("audit"),
    setting("audit.calls", Kind::Choice(&["admin", "all"])),
    optional("audit.file", Kind::Path),
    setting("audit.max_file_bytes", Kind::Integer(65_536, 1 << 40)),
    setting("audit.max_files", Kind::Integer(1, 10_000)),
    table("metrics"),
    setting("metrics.enabled", Kind::Bool),
    setting("metrics.max_queues", Kind::Integer(0, 1_000_000)),
    table("log"),
    setting("log.format", Kind::Choice(&["auto", "human", "json"])),
    setting("log.level", Kind::Choice(&["off", "error", "warn", "info", "debug", "trace"])),
    table("trace"),
    optional("trace.otlp_endpoint", Kind::HttpUrl),
    setting("trace.sample", Kind::Number { min: 0.0, min_allowed: true, max: 1.0 }),
];

/// The setting or table of this path.
pub(super) fn find(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.path == path)
}

impl Setting {
    /// Is this a table, directly or further up, of that setting?
    pub(super) fn contains(&self, path: &str) -> bool {
        path.strip_prefix(self.path).is_some_and(|rest| rest.starts_with('.'))
    }

    /// The beginning of the value as a message shows it: of what has to do with tokens only its shape, as it may be a secret.
    pub(super) fn shown(&self, value: &Value, is_json: bool) -> String {
        if matches!(self.kind, Kind::Tokens) {
            return access::fault(value);
        }
        if self.path.starts_with("access") {
            return document::shape(value);
        }
        let json = || serde_json::to_string(value).unwrap_or_default();
        let mut text = if is_json { json() } else { value.to_string() };
        if let Some((cut, _)) = text.char_indices().nth(SHOWN_CHARS_MAX) {
            text.truncate(cut);
            text.push_str("...");
        }
        text
    }

    /// What it may be, in words that follow "allowed is".
    pub(super) fn allowed(&self, is_json: bool) -> String {
        let allowed = self.kind.allowed(is_json);
        match (self.optional, is_json) {
            (false, _) => allowed,
            (true, false) => format!("{allowed}, or {UNSET:?}"),
            (true, true) => format!("{allowed}, or null"),
        }
    }
}

impl Kind {
    /// Is the value one that the setting may be?
    pub(super) fn accepts(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Table, Value::Table(_)) | (Self::Bool, Value::Boolean(_)) => true,
            (Self::Integer(min, max), Value::Integer(number)) => (min..=max).contains(number),
            (Self::Number { min, min_allowed, max }, Value::Integer(_) | Value::Float(_)) => {
                number(value).is_some_and(|n| n <= max && (n > min || (min_allowed && n >= min)))
            }
            (Self::Duration(min, max), Value::String(text)) => {
                match (duration::parse(text), duration::parse(min), duration::parse(max)) {
                    (Ok(duration), Ok(min), Ok(max)) => (min..=max).contains(&duration),
                    _ => false,
                }
            }
            (Self::Address { or_empty }, Value::String(text)) => {
                (or_empty && text.is_empty()) || text.parse::<std::net::SocketAddr>().is_ok()
            }
            (Self::Hosts, Value::Array(hosts)) => hosts.iter().all(|host| host.as_str().is_some_and(is_host)),
            (Self::Pointers, Value::Array(parts)) => {
                (1..=KEY_PARTS_MAX).contains(&parts.len()) && parts.iter().all(is_key_part)
            }
            (Self::HttpUrl, Value::String(text)) => is_http_url(text),
            (Self::Tokens, Value::Array(tokens)) => tokens.iter().all(access::is_token),
            (Self::Choice(choices), Value::String(text)) => choices.contains(&text.as_str()),
            // What is not Unicode comes with replacement characters, and would lead elsewhere.
            (Self::Path, Value::String(text)) => !text.is_empty() && !text.contains(['\0', '\u{fffd}']),
            _ => false,
        }
    }

    /// Whether the environment's text is the value itself; else it is read as a TOML value.
    pub(super) const fn is_text(self) -> bool {
        matches!(
            self,
            Self::Duration(..) | Self::Address { .. } | Self::Choice(_) | Self::Path | Self::HttpUrl
        )
    }

    fn allowed(self, is_json: bool) -> String {
        match self {
            Self::Table if is_json => "an object".to_owned(),
            Self::Table => "a table".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::Integer(min, i64::MAX) => format!("a whole number from {min}"),
            Self::Integer(min, max) => format!("a whole number from {min} to {max}"),
            Self::Number { min, min_allowed: true, max } => format!("a number from {min} to {max}"),
            Self::Number { min, min_allowed: false, max } => format!("a number above {min} and up to {max}"),
            Self::Duration(min, max) => format!("a duration from {min} to {max}, such as \"30s\""),
            Self::Address { or_empty: false } => {
                "an IP address and a port, such as \"127.0.0.1:7070\"".to_owned()
            }
            Self::Address { or_empty: true } => {
                "an IP address and a port, such as \"127.0.0.1:7071\", or \"\"".to_owned()
            }
            Self::Hosts => "a list of host names without port, such as [\"deltaq.example\"]".to_owned(),
            Self::Pointers => {
                let with_optional = if is_json {
                    r#"{"pointer":"/namespace","optional":true}"#
                } else {
                    r#"{ pointer = "/namespace", optional = true }"#
                };
                format!(
                    r#"a list of 1 to {KEY_PARTS_MAX} JSON pointers, such as ["/key"] or [{with_optional}, "/name"]"#
                )
            }
            Self::Choice(choices) => format!("one of {}", choices.join(", ")),
            Self::Path => "a path in UTF-8".to_owned(),
            Self::HttpUrl => "a URL such as \"http://localhost:4318/v1/traces\"".to_owned(),
            Self::Tokens => "a list of tokens, such as [{ name = \"erp\", sha256 = \"..64 digits..\", grants = [{ verbs = [\"produce\"], queues = [\"erp-*\"] }] }]".to_owned(),
        }
    }
}

/// Most parts of a key.
pub(super) const KEY_PARTS_MAX: usize = crate::engine::limits::KEY_POINTERS_MAX;

/// A TOML number as a finite float.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Float(number) => *number,
        // Whole numbers past 2^53 are far outside of every range, so it does not matter where they round to.
        #[expect(clippy::cast_precision_loss, reason = "only compared with small bounds")]
        Value::Integer(number) => *number as f64,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

/// A name or an IP literal, IPv6 in brackets, without port.
fn is_host(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|ip| ip.parse::<std::net::Ipv6Addr>().is_ok()),
        None => {
            !text.is_empty()
                && text.len() <= 253
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        }
    }
}

/// With a host, and without anything that needs TLS or tells a secret.
fn is_http_url(text: &str) -> bool {
    let rest = text.strip_prefix("http://").unwrap_or_default();
    let authority = rest.split('/').next().unwrap_or_default();
    !authority.is_empty() && !authority.contains('@') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_key_part(part: &Value) -> bool {
    match part {
        Value::String(pointer) => is_pointer(pointer),
        Value::Table(table) => {
            table.get("pointer").and_then(Value::as_str).is_some_and(is_pointer)
                && table.get("optional").is_none_or(Value::is_bool)
                && table.keys().all(|name| matches!(name.as_str(), "pointer" | "optional"))
        }
        _ => false,
    }
}

/// RFC 6901, without the empty pointer: the whole object is no key.
fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']))
}
