//! Kills at the worst moment: right behind an answer, when what it tells may not be durable yet.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::history::{Call, What};

/// An answer to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Produced,
    Replaced,
    Settled,
    /// By a pop that got nothing.
    SettledByPop,
    Leased,
}

impl Moment {
    pub(crate) const ALL: [Self; 5] =
        [Self::Produced, Self::Replaced, Self::Settled, Self::SettledByPop, Self::Leased];

    /// Whether this is such an answer.
    fn is(self, call: &Call) -> bool {
        let Some(reply) = call.reply() else { return false };
        match (&call.what, self) {
            (What::Produce { is_replace, .. }, Self::Produced) => !is_replace,
            (What::Produce { is_replace, .. }, Self::Replaced) => *is_replace,
            (What::Settle { .. }, Self::Settled) => true,
            (What::Pop { settles, .. }, Self::SettledByPop) => !settles.is_empty() && reply.leases.is_empty(),
            (What::Pop { .. }, Self::Leased) => !reply.leases.is_empty(),
            _ => false,
        }
    }
}

/// Tells the killer of the first answer of a kind.
#[derive(Debug)]
pub(crate) struct Alarm {
    wanted: Mutex<Option<Moment>>,
    bell: SyncSender<()>,
    rung: Mutex<Receiver<()>>,
}

impl Alarm {
    pub(crate) fn new() -> Self {
        let (bell, rung) = sync_channel(1);
        Self { wanted: Mutex::default(), bell, rung: Mutex::new(rung) }
    }

    /// Waits for such an answer, at most `patience`.
    pub(crate) fn wait(&self, moment: Moment, patience: Duration) {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        // A client may still have rung after the last time was over.
        while rung.try_recv().is_ok() {}
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(moment);
        let _came = rung.recv_timeout(patience);
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A client has got an answer.
    pub(crate) fn hear(&self, call: &Call) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.take_if(|wanted| wanted.is(call)).is_some() {
            let _full = self.bell.try_send(());
        }
    }
}
