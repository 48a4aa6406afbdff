//! The environment variables that are settings: `DELTAQ_SECTION__FIELD`.
//!
//! Only this module reads the environment. clap reads `DELTAQ_CONFIG` by itself.

/// The prefix of the variables' names.
pub(super) const PREFIX: &str = "DELTAQ_";
/// The separator between section and field.
const SEPARATOR: &str = "__";

/// The variables of the process.
///
/// Bytes that are not Unicode become replacement characters, which no setting accepts.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
pub fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// The log filter `RUST_LOG`, if it is set and not empty.
#[must_use]
pub fn rust_log() -> Option<String> {
    variable("RUST_LOG")
}

/// Whether a service manager has passed a socket for notifications.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
#[must_use]
pub fn is_supervised() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

/// The token of a client, if it is set and not empty.
#[must_use]
pub fn client_token() -> Option<String> {
    variable("DELTAQ_TOKEN")
}

/// The address of the server that a client calls, if it is set and not empty.
#[must_use]
pub fn client_url() -> Option<String> {
    variable("DELTAQ_URL")
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the environment permits colours on a terminal: `NO_COLOR` is unset or empty, and `TERM` is not `dumb`.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
#[must_use]
pub fn permits_colors() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// `DELTAQ_SERVER__LISTEN` -> `server.listen`. Other variables with the prefix, such as `DELTAQ_TOKEN` or the service
/// links of Kubernetes (`DELTAQ_PORT`), are not settings.
pub(super) fn setting_of(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(PREFIX)?;
    let (section, _) = name.split_once(SEPARATOR)?;
    (!section.is_empty()).then(|| name.replace(SEPARATOR, ".").to_ascii_lowercase())
}

/// The setting that a variable was probably meant to set, if an underscore or the section is missing, as in
/// `DELTAQ_SERVER_LISTEN` or `DELTAQ_LISTEN`. No variable of a client and no service link has such a name.
pub(super) fn mistaken_setting(variable: &str, settings: &[String]) -> Option<String> {
    let name = variable.strip_prefix(PREFIX)?.to_ascii_lowercase();
    let is_meant = |path: &&String| match path.split_once('.') {
        // A worker passes DELTAQ_KEY and DELTAQ_LEASE to its command, and these match names of queue settings. A
        // client uses DELTAQ_CA_FILE.
        Some(("queue_defaults", _) | ("cluster", "ca_file")) | None => {
            path.contains('.') && path.replace('.', "_") == name
        }
        Some((_, field)) => path.replace('.', "_") == name || field == name,
    };
    settings.iter().find(is_meant).cloned()
}

/// `server.listen` -> `DELTAQ_SERVER__LISTEN`.
pub(super) fn variable_name(path: &str) -> String {
    format!("{PREFIX}{}", path.replace('.', SEPARATOR).to_ascii_uppercase())
}
