//! The variables of the environment that are settings: `DELTAQ_SECTION__FIELD`.
//!
//! This is the one place that reads the environment (command line parsing aside, where clap reads `DELTAQ_CONFIG`).

use toml::Value;

use super::schema::Kind;

/// What all of them begin with.
const PREFIX: &str = "DELTAQ_";

/// Variables with the prefix that are no settings: the path of the file, and where the tests find the recordings.
const NOT_SETTINGS: [&str; 2] = ["DELTAQ_CONFIG", "DELTAQ_CONFORMANCE_DIR"];

/// The process's variables that [`load`](super::load) looks at.
///
/// What is not Unicode is read with replacement characters, so that it fails the check of its setting and is named.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// The log filter that operators of Rust programs know, if it is set and not empty.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
#[must_use]
pub fn rust_log() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty())
}

/// Whether somebody waits to be told how the process is: an empty name of a socket is as good as none.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
#[must_use]
pub fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

/// Does the variable mean to be a setting?
pub(super) fn is_setting(name: &str, value: &str) -> bool {
    name.starts_with(PREFIX) && !NOT_SETTINGS.contains(&name) && !is_service_link(name, value)
}

/// `server.listen` -> `DELTAQ_SERVER__LISTEN`.
pub(super) fn variable_name(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', "__").to_ascii_uppercase())
}

/// The value that a text is for a setting of this kind.
pub(super) fn value(kind: Kind, text: &str) -> Value {
    if kind.is_text() {
        return Value::String(text.to_owned());
    }
    text.trim().parse().unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Kubernetes puts the address of every service of a namespace into the environment of its containers. Beside a service
/// named `deltaq` (or `deltaq-anything`) those variables have our prefix, and must not keep the server from starting.
fn is_service_link(name: &str, value: &str) -> bool {
    if name.contains("__") {
        return false;
    }
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if name.ends_with("_SERVICE_HOST") {
        return value.parse::<std::net::IpAddr>().is_ok();
    }
    if name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_") {
        return is_number(value);
    }
    let Some((_, port)) = name.split_once("_PORT") else { return false };
    match port.strip_prefix('_').map(|rest| rest.split('_').collect::<Vec<_>>()).as_deref() {
        None => port.is_empty() && value.contains("://"),
        Some([number, "TCP" | "UDP" | "SCTP", rest @ ..]) => {
            is_number(number) && matches!(rest, [] | ["PROTO" | "PORT" | "ADDR"])
        }
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_of_kubernetes_are_no_settings() {
        for (name, value) in [
            ("DELTAQ_SERVICE_HOST", "10.0.0.11"),
            ("DELTAQ_SERVICE_PORT", "7070"),
            ("DELTAQ_SERVICE_PORT_HTTP", "7070"),
            ("DELTAQ_PORT", "tcp://10.0.0.11:7070"),
            ("DELTAQ_PORT_7070_TCP", "tcp://10.0.0.11:7070"),
            ("DELTAQ_PORT_7070_TCP_PROTO", "tcp"),
            ("DELTAQ_PORT_7070_TCP_PORT", "7070"),
            ("DELTAQ_PORT_7070_TCP_ADDR", "10.0.0.11"),
            ("DELTAQ_METRICS_SERVICE_HOST", "10.0.0.12"),
        ] {
            assert!(!is_setting(name, value), "{name}");
        }
        for (name, value) in [
            ("DELTAQ_PORT", "7070"),
            ("DELTAQ_SERVER__LISTEN", "tcp://10.0.0.11:7070"),
            ("DELTAQ_LISTEN", "127.0.0.1:7070"),
            ("DELTAQ_PORT_X_TCP", "tcp://10.0.0.11:7070"),
        ] {
            assert!(is_setting(name, value), "{name}");
        }
    }
}
