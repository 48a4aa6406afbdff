//! Notifies systemd, or another supervisor with its protocol: the process is ready, reloads, or stops. Without
//! `NOTIFY_SOCKET` in the environment nothing happens.

use sd_notify::NotifyState;

use crate::config;

/// The server accepts requests.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// A reload begins; [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the supervisor could not be notified of a reload"),
    }
}

/// The server drains, or ends.
pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    if !config::is_supervised() {
        return;
    }
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor could not be notified");
    }
}
