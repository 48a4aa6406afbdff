//! Two nodes that both believe that they own the queues: another node has opened the store, and the first one goes on until it notices.

use std::time::Duration;

use deltaq_engine::command::Call;
use deltaq_engine::delta::DeltaKind;
use deltaq_journal::writer;
use deltaq_runtime::lifecycle::Shutdown;
use deltaq_types::Mode;
use fastrand::Rng;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::time::Instant;

use super::Violation;
use super::calls::{key, key_name, object};
use super::disk::Disk;
use super::plan::millis;
use super::run::{End, Run, SHUTDOWN};
use crate::node::Node;

/// Far longer than a node takes to notice that it has lost its queues.
const NOTICED: Duration = Duration::from_mins(2);
/// How long a caller of the former owner waits.
const PATIENCE: Duration = Duration::from_secs(1);

impl Run {
    /// Another node takes the queues from `node`, which goes on beside it. The connections of the callers have ended, because a node whose
    /// ownership is not sure does not answer. Returns how the life of the other node ends.
    pub(super) fn taken_over<'a>(
        &'a self,
        disk: &'a Disk,
        node: Node,
        rng: &'a mut Rng,
        spared: bool,
    ) -> LocalBoxFuture<'a, Result<End, Violation>> {
        let takes = async move {
            self.world.note(format_args!("another node takes the queues"));
            self.world.ledger(|ledger| {
                ledger.ended();
                ledger.hit("another node took the queues");
            });
            disk.memory.repair();
            let (disk, shutdown) = (disk.for_another_node(), Shutdown::manual(SHUTDOWN));
            let mut former = self.go_on(node, rng.fork()).boxed_local();
            let life = async {
                tokio::select! {
                    biased;
                    () = disk.memory.crashed() => Ok(End::Crashed),
                    end = self.live(&disk, &shutdown, rng, spared) => end,
                }
            };
            let mut life = std::pin::pin!(life);
            tokio::select! {
                biased;
                end = &mut life => return end,
                noticed = &mut former => noticed?,
            }
            life.await
        };
        takes.boxed_local()
    }

    /// The former owner takes calls until it notices. It must accept none of them: the ledger knows nothing of these objects, so it
    /// would find any of them.
    async fn go_on(&self, node: Node, mut rng: Rng) -> Result<(), Violation> {
        let Node { registry, mut writing } = node;
        let begun = Instant::now();
        while begun.elapsed() < NOTICED {
            tokio::select! {
                biased;
                ended = &mut writing => {
                    return match ended {
                        Ok(writer::Ended::Fenced) => {
                            self.world.ledger(|ledger| ledger.hit("the former owner noticed it by itself"));
                            Ok(())
                        }
                        other => Err(format!("the former owner ended by {other:?}")),
                    };
                }
                () = tokio::time::sleep(millis(&mut rng, 1..100)) => {}
            }
            let setup = rng.choice(&self.plan.queues).expect("there are some");
            // An add of a waiting key in mode keys changes nothing.
            let handle = registry.find(&setup.name).filter(|_| setup.config.mode != Mode::Keys);
            let Some(handle) = handle else { continue };
            let name = key_name(rng.usize(..setup.keys));
            let call = Call {
                kind: DeltaKind::Added,
                key: key(&name),
                object: Some(object(&name, self.world.next_number())),
                source: None,
                delay: None,
                debounce: None,
                head_start: None,
                final_state_unknown: false,
                rate_limited: false,
                trace: None,
                version: None,
            };
            let added = tokio::time::timeout(PATIENCE, handle.produce(&setup.config, &[call])).await;
            if let Ok(Ok(produced)) = added
                && produced.queued > 0
            {
                return Err(format!("{}: the former owner accepted {name}: {produced:?}", setup.name));
            }
        }
        Err(format!("the former owner notices nothing within {NOTICED:?}"))
    }
}
