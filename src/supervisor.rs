//! Notifies systemd, or another supervisor that uses its protocol, that the process is ready, reloading or stopping.
//! Does nothing if `NOTIFY_SOCKET` is not set in the environment.

use sd_notify::NotifyState;

use crate::config;

/// Reports that the server accepts requests.
pub fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports that a reload has begun. [`ready`] ends it.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the supervisor could not be notified of a reload"),
    }
}

/// Reports that the server is draining or ending.
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
