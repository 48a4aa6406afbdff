//! The validation request, with which the webhooks of CloudEvents ask whether an endpoint takes requests.

use std::sync::Arc;
use std::time::Duration;

use deltaq_types::Push;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::push::Sender;

/// The wait before the request is repeated. It doubles up to [`WAIT_MAX`].
const WAIT: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_mins(5);

/// The validation of one endpoint.
pub(super) enum Handshake {
    /// The endpoint is asked.
    Asks {
        sender: Arc<Sender>,
        timeout: Duration,
        answer: BoxFuture<'static, Result<Duration, String>>,
        /// The wait after the next refusal.
        wait: Duration,
    },
    /// The endpoint permits requests.
    Permitted {
        /// The least time between two of them.
        interval: Duration,
    },
}

impl Handshake {
    /// Asks the endpoint if the setting says so.
    pub(super) fn of(sender: &Arc<Sender>, setting: &Push) -> Option<Self> {
        setting.handshake.as_ref()?;
        let (sender, timeout) = (sender.clone(), setting.timeout.get());
        let answer = ask(sender.clone(), timeout, Duration::ZERO);
        Some(Self::Asks { sender, timeout, answer, wait: WAIT })
    }

    pub(super) const fn is_granted(&self) -> bool {
        matches!(self, Self::Permitted { .. })
    }

    /// The least time between two requests.
    pub(super) const fn interval(&self) -> Duration {
        match self {
            Self::Asks { .. } => Duration::ZERO,
            Self::Permitted { interval } => *interval,
        }
    }

    /// Waits for the next answer; forever if the endpoint permits requests. Dropping this loses nothing.
    pub(super) async fn answered(&mut self) -> Result<(), String> {
        let Self::Asks { sender, timeout, answer, wait } = self else {
            return std::future::pending().await;
        };
        match (&mut *answer).await {
            Ok(interval) => {
                *self = Self::Permitted { interval };
                Ok(())
            }
            Err(why) => {
                *answer = ask(sender.clone(), *timeout, *wait);
                *wait = (*wait * 2).min(WAIT_MAX);
                Err(why)
            }
        }
    }
}

fn ask(
    sender: Arc<Sender>,
    timeout: Duration,
    wait: Duration,
) -> BoxFuture<'static, Result<Duration, String>> {
    Box::pin(async move {
        sleep(wait).await;
        sender.validate(timeout).await
    })
}
