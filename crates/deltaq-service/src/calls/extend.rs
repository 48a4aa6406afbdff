//! Extensions that wait for a change behind their leases.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::Settled;
use deltaq_engine::id::Token;
use tokio::sync::Notify;

use crate::Error;
use crate::queue::{Handle, Locked};

impl Handle {
    /// Waits for a change behind one of these leases, or for the end of one. Returns the states of the leases.
    ///
    /// # Errors
    /// [`Error::QueueDeleted`], [`Error::NotOwner`] or [`Error::Journal`].
    pub async fn until_changed(
        &self,
        tokens: &[Token],
        wait: Duration,
        ended: impl Future<Output = ()>,
    ) -> Result<Vec<Settled>, Error> {
        let call = Arc::new(Notify::new());
        if self.open()?.join(tokens, &call) {
            let _left_at_end = LeaseWait { handle: self, tokens, call: &call };
            tokio::select! {
                () = call.notified() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.shutdown().draining().cancelled() => {}
                () = ended => {}
            }
        }
        let (states, commit) = {
            let state = self.open()?;
            let states = tokens.iter().map(|token| state.queue.lease_state(*token)).collect();
            (states, state.commits.newest.clone())
        };
        commit.wait().await?;
        Ok(states)
    }
}

impl Locked {
    /// Registers a call that waits. Returns false if there is nothing to wait for.
    fn join(&mut self, tokens: &[Token], call: &Arc<Notify>) -> bool {
        let waits = self.queue.await_change(tokens);
        if waits {
            self.lease_waits.join(tokens, call);
        }
        waits
    }

    fn leave(&mut self, tokens: &[Token], call: &Arc<Notify>) {
        for token in tokens.iter().filter(|token| self.lease_waits.leave(**token, call)) {
            self.queue.stop_awaiting(*token);
        }
    }
}

/// A waiting call. Dropping it ends its wait.
struct LeaseWait<'h> {
    handle: &'h Handle,
    tokens: &'h [Token],
    call: &'h Arc<Notify>,
}

impl Drop for LeaseWait<'_> {
    fn drop(&mut self) {
        self.handle.lock().leave(self.tokens, self.call);
    }
}
