//! The question whether an endpoint takes requests, which the webhooks of CloudEvents ask with `OPTIONS`.

use std::time::Duration;

use deltaq_types::Push;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::push::{Endpoint, Permission, Sender};

/// The wait before the question is asked again. It doubles up to [`WAIT_MAX`].
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_mins(5);

type Asking = BoxFuture<'static, Result<Permission, String>>;

/// The question to one endpoint.
pub(super) struct Handshake {
    state: State,
    sender: Sender,
    endpoint: Endpoint,
    origin: String,
    timeout: Duration,
    /// The wait after the next refusal.
    wait: Duration,
}

enum State {
    Asking(Asking),
    Granted(Permission),
}

impl Handshake {
    /// Asks the endpoint if the setting says so.
    pub(super) fn of(sender: &Sender, endpoint: &Endpoint, setting: &Push) -> Option<Self> {
        let origin = setting.handshake.clone()?;
        let (sender, endpoint, timeout) = (sender.clone(), endpoint.clone(), setting.timeout.get());
        let state =
            State::Asking(asking(sender.clone(), endpoint.clone(), origin.clone(), timeout, Duration::ZERO));
        Some(Self { state, sender, endpoint, origin, timeout, wait: WAIT })
    }

    pub(super) const fn is_granted(&self) -> bool {
        matches!(self.state, State::Granted(_))
    }

    /// The least time between two requests.
    pub(super) const fn interval(&self) -> Duration {
        match &self.state {
            State::Granted(permission) => permission.interval,
            State::Asking(_) => Duration::ZERO,
        }
    }

    /// Waits for the next answer; forever if the endpoint permits requests. Dropping this loses nothing.
    pub(super) async fn asked(&mut self) -> Result<(), String> {
        let State::Asking(answer) = &mut self.state else { return std::future::pending().await };
        match answer.await {
            Ok(permission) => {
                self.state = State::Granted(permission);
                Ok(())
            }
            Err(why) => {
                let (sender, endpoint) = (self.sender.clone(), self.endpoint.clone());
                let again = asking(sender, endpoint, self.origin.clone(), self.timeout, self.wait);
                self.state = State::Asking(again);
                self.wait = (self.wait * 2).min(WAIT_MAX);
                Err(why)
            }
        }
    }
}

fn asking(sender: Sender, endpoint: Endpoint, origin: String, timeout: Duration, wait: Duration) -> Asking {
    Box::pin(async move {
        sleep(wait).await;
        sender.ask(&endpoint, &origin, timeout).await
    })
}
