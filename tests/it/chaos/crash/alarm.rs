//! Kills at the worst moment: right after a reply, when a faulty server might not have committed yet.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::history::{Call, Operation};

/// A reply to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Produced,
    Replaced,
    Settled,
    /// By a pop without keys in its reply.
    SettledByPop,
    Leased,
}

impl Moment {
    pub(crate) const ALL: [Self; 5] =
        [Self::Produced, Self::Replaced, Self::Settled, Self::SettledByPop, Self::Leased];

    /// Whether the call is such a reply.
    fn matches(self, call: &Call) -> bool {
        let Some(reply) = call.reply() else { return false };
        match (&call.operation, self) {
            (Operation::Produce { is_replace, .. }, Self::Produced) => !is_replace,
            (Operation::Produce { is_replace, .. }, Self::Replaced) => *is_replace,
            (Operation::Settle { .. }, Self::Settled) => true,
            (Operation::Pop { settles, .. }, Self::SettledByPop) => {
                !settles.is_empty() && reply.leases.is_empty()
            }
            (Operation::Pop { .. }, Self::Leased) => !reply.leases.is_empty(),
            _ => false,
        }
    }
}

/// Notifies the thread that kills of the first reply of a kind.
#[derive(Debug)]
pub(crate) struct Alarm {
    wanted: Mutex<Option<Moment>>,
    sender: SyncSender<()>,
    receiver: Mutex<Receiver<()>>,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = sync_channel(1);
        Self { wanted: Mutex::default(), sender, receiver: Mutex::new(receiver) }
    }

    /// Waits for such a reply, at most `patience`.
    pub(crate) fn wait(&self, moment: Moment, patience: Duration) {
        let receiver = self.receiver.lock();
        // A client may have sent a notification after the last wait ended.
        while receiver.try_recv().is_ok() {}
        *self.wanted.lock() = Some(moment);
        let _notified = receiver.recv_timeout(patience);
        *self.wanted.lock() = None;
    }

    /// Records a completed call.
    pub(crate) fn observe(&self, call: &Call) {
        let mut wanted = self.wanted.lock();
        if wanted.take_if(|wanted| wanted.matches(call)).is_some() {
            let _full = self.sender.try_send(());
        }
    }
}
