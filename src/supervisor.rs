//! What whoever supervises the process is told, by systemd's protocol: that it is ready, reads its settings
//! again, or stops. Without `NOTIFY_SOCKET` in the environment nobody is, and nothing happens.

use sd_notify::NotifyState;

use crate::config;

/// The server takes requests.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Tokens and certificates are read again; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the supervisor could not be told of a reload"),
    }
}

/// The server drains, or ends.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if !config::is_supervised() {
        return;
    }
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor could not be told");
    }
}
