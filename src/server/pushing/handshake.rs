//! The validation request, with which the webhooks of CloudEvents ask whether an endpoint takes requests.

use std::time::Duration;

use deltaq_types::Push;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::push::{Endpoint, Sender};

/// The wait before the request is repeated. It doubles up to [`WAIT_MAX`].
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The validation of one endpoint.
pub(super) struct Handshake {
    sender: Sender,
    endpoint: Endpoint,
    timeout: Duration,
    /// The least time between two requests, once the endpoint permits them.
    interval: Option<Duration>,
    answer: BoxFuture<'static, Result<Duration, String>>,
    /// The wait after the next refusal.
    wait: Duration,
}

impl Handshake {
    /// Asks the endpoint if the setting says so.
    pub(super) fn of(sender: &Sender, endpoint: &Endpoint, setting: &Push) -> Option<Self> {
        setting.handshake.as_ref()?;
        let (sender, endpoint, timeout) = (sender.clone(), endpoint.clone(), setting.timeout.get());
        let answer = Box::pin(std::future::pending());
        let mut handshake = Self { sender, endpoint, timeout, interval: None, answer, wait: WAIT };
        handshake.ask(Duration::ZERO);
        Some(handshake)
    }

    fn ask(&mut self, wait: Duration) {
        let (sender, endpoint, timeout) = (self.sender.clone(), self.endpoint.clone(), self.timeout);
        self.answer = Box::pin(async move {
            sleep(wait).await;
            sender.validate(&endpoint, timeout).await
        });
    }

    pub(super) const fn is_granted(&self) -> bool {
        self.interval.is_some()
    }

    /// The least time between two requests.
    pub(super) fn interval(&self) -> Duration {
        self.interval.unwrap_or_default()
    }

    /// Waits for the next answer; forever if the endpoint permits requests. Dropping this loses nothing.
    pub(super) async fn answered(&mut self) -> Result<(), String> {
        if self.is_granted() {
            return std::future::pending().await;
        }
        match (&mut self.answer).await {
            Ok(interval) => {
                self.interval = Some(interval);
                Ok(())
            }
            Err(why) => {
                self.ask(self.wait);
                self.wait = (self.wait * 2).min(WAIT_MAX);
                Err(why)
            }
        }
    }
}
