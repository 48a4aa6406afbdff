//! Whether other nodes answer, as far as the calls that wait for them need to know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use deltaq_service::Peer;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How often a node is asked while calls wait for it. Only one of the calls asks at a time.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a node may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// A node that has answered nothing for this long is silent. A call that it has not answered then ends earlier than one whose owner is
/// removed.
const SILENCE: Duration = Duration::from_secs(6);

/// The pulses of the other nodes, by their URL.
#[derive(Debug, Default)]
pub(super) struct Pulses(Mutex<BTreeMap<String, Arc<Pulse>>>);

/// When a node has last answered.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    heard: Mutex<Option<Instant>>,
    /// When a call has last begun to ask the node.
    asked: Mutex<Option<Instant>>,
}

impl Pulses {
    /// The pulse of this node.
    pub(super) fn of(&self, peer: &Peer) -> Arc<Pulse> {
        let mut pulses = self.0.lock();
        if let Some(pulse) = pulses.get(&peer.url) {
            return pulse.clone();
        }
        // A node that starts again may have another URL.
        pulses.retain(|_, pulse| Arc::strong_count(pulse) > 1);
        pulses.entry(peer.url.clone()).or_default().clone()
    }
}

impl Pulse {
    /// Records that the node has answered.
    pub(super) fn note(&self) {
        *self.heard.lock() = Some(Instant::now());
    }

    /// Waits until the node has been silent since this was called, and for [`SILENCE`].
    pub(super) async fn until_silent<F: Future<Output = bool>>(&self, is_there: impl Fn() -> F) {
        let mut heard = Instant::now();
        loop {
            tokio::time::sleep(PERIOD).await;
            if self.is_to_ask() && tokio::time::timeout(ANSWER_MAX, is_there()).await == Ok(true) {
                self.note();
            }
            heard = self.heard.lock().map_or(heard, |last| last.max(heard));
            if heard.elapsed() >= SILENCE {
                return;
            }
        }
    }

    /// Whether the caller should ask the node, because nobody does so.
    fn is_to_ask(&self) -> bool {
        let now = Instant::now();
        let mut asked = self.asked.lock();
        if asked.is_some_and(|asked| now - asked < ANSWER_MAX.min(PERIOD)) {
            return false;
        }
        *asked = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn many_calls_ask_a_silent_node_once_per_period() {
        let (pulse, asked) = (Pulse::default(), AtomicU32::new(0));
        let ask = || async {
            asked.fetch_add(1, Ordering::Relaxed);
            std::future::pending().await
        };
        let begun = Instant::now();
        let calls = (0..50).map(|_| pulse.until_silent(ask));
        futures_util::future::join_all(calls).await;
        let (took, asked) = (begun.elapsed(), asked.into_inner());
        assert!((SILENCE..SILENCE + PERIOD + ANSWER_MAX).contains(&took), "{took:?}");
        assert!((2..=10).contains(&asked), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_or_comes_back_in_time_is_not_silent() {
        for answers in [1, 2, 3] {
            let (pulse, asked) = (Pulse::default(), AtomicU32::new(0));
            // Some questions are lost.
            let ask = || async { asked.fetch_add(1, Ordering::Relaxed) % answers == 0 };
            let silent = tokio::time::timeout(20 * SILENCE, pulse.until_silent(ask)).await;
            assert!(silent.is_err(), "{answers}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_to_another_call_counts() {
        let pulse = Pulse::default();
        let other = async {
            loop {
                tokio::time::sleep(SILENCE / 2).await;
                pulse.note();
            }
        };
        let ask = || std::future::ready(false);
        let silent = async {
            tokio::select! {
                () = pulse.until_silent(ask) => {}
                () = other => {}
            }
        };
        assert!(tokio::time::timeout(20 * SILENCE, silent).await.is_err());
    }
}
