//! Acknowledgements of a part of a lease, with which the lease goes on.

use deltaq_engine::command::{How, Part, Settle, Settled};
use fastrand::Rng;

use super::Violation;
use super::caller::Caller;

impl Caller {
    /// Settles leases, or acknowledges the older deltas of one.
    pub(super) async fn settle(&self, rng: &mut Rng) -> Result<(), Violation> {
        // A generator of its own, so that the other choices of a seed do not depend on parts.
        let mut parts = Rng::with_seed(rng.get_seed());
        if parts.u8(..4) == 0 && self.acknowledge_part(&mut parts).await? {
            return Ok(());
        }
        let settles = self.some_held(rng, None);
        self.send_settles(settles).await
    }

    /// Acknowledges the older deltas of a lease. False if no lease has several.
    async fn acknowledge_part(&self, rng: &mut Rng) -> Result<bool, Violation> {
        let mut leases = self.memory().held.clone();
        leases.retain(|lease| lease.deltas.len() > 1);
        let Some(lease) = rng.choice(&leases) else { return Ok(false) };
        let Some(handle) = self.handle_of(lease) else { return Ok(false) };
        let through = lease.deltas[rng.usize(..lease.deltas.len() - 1)];
        let asked = self.world.ledger(|ledger| {
            let asked = ledger.asks(&lease.queue);
            ledger.progresses(&lease.queue, &lease.key, lease.token, through).map(|()| asked)
        })?;
        let part = Part { through, rest: None };
        let settle = Settle { token: handle.token(&lease.id), how: How::Part(Box::new(part)) };
        self.note(("settle a part", &settle));
        match handle.settle(&[settle]).await {
            Ok(settled) => self.world.ledger(|ledger| {
                ledger.answered(&asked, None)?;
                let reply = *settled.first().ok_or("a settle without a result")?;
                ledger.hit(match reply {
                    Settled::Ok { .. } => "a part is acknowledged",
                    Settled::Repeated => "a part is acknowledged again",
                    _ => "a part comes after its lease",
                });
                ledger.progressed(&lease.queue, &lease.key, lease.token, through, reply)
            })?,
            Err(error) => self.failed(&error),
        }
        Ok(true)
    }
}
