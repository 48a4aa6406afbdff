//! Followers of the simulated queues: their workers, and their settings, which come and go. The changes that a follower takes are
//! judged by the durable events; at the end, a follower has the objects of the queue that it follows.

use std::sync::Arc;
use std::time::Duration;

use deltaq_engine::command::How;
use deltaq_engine::config::Config;
use deltaq_engine::follow::Follow;
use deltaq_engine::view::View;
use deltaq_service::{Creator, Error, Obstacle, Registry};
use fastrand::Rng;
use parking_lot::Mutex;

use super::Violation;
use super::plan::{FollowerSetup, millis};
use super::world::World;
use crate::followers::{objects_in, work};

/// More rounds than a follower needs at the end.
const ROUNDS: usize = 600;
/// More keys than a queue has.
const KEYS_MAX: usize = 1_000;

/// A follower.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) world: Arc<World>,
    pub(super) setup: FollowerSetup,
    rng: Mutex<Rng>,
}

impl Follower {
    pub(super) fn new(world: &Arc<World>, setup: FollowerSetup, seed: u64) -> Self {
        Self { world: world.clone(), setup, rng: Mutex::new(Rng::with_seed(seed)) }
    }

    /// Creates the follower, works for it, and detaches and attaches it now and then, until the node ends.
    pub(super) async fn run(&self, registry: &Registry) -> Violation {
        loop {
            let (pause, choice, max, how) = {
                let rng = &mut self.rng.lock();
                let nack = How::Nack { delay: None, floor: false, error: None };
                let how = vec![How::Ack, How::Ack, How::Ack, nack, How::Release].swap_remove(rng.usize(..5));
                (millis(rng, 1..self.setup.pause_ms), rng.u8(..20), rng.usize(1..6), how)
            };
            tokio::time::sleep(pause).await;
            let follow = if choice == 0 { None } else { Some(self.setup.follow.clone()) };
            if choice < 4 {
                self.configure(registry, follow).await.unwrap_or_else(|error| self.note(&error));
                continue;
            }
            let Some(handle) = registry.find(&self.setup.name) else { continue };
            if work(&handle, max, how).await.is_some_and(|work| !work.items.is_empty()) {
                self.world.ledger(|ledger| ledger.hit("a follower delivered"));
            }
        }
    }

    fn note(&self, what: impl std::fmt::Debug) {
        self.world.note(format_args!("follower {}: {what:?}", self.setup.name));
    }

    /// Creates the follower, or changes what it follows.
    async fn configure(&self, registry: &Registry, follow: Option<Arc<Follow>>) -> Result<(), Error> {
        let Some(handle) = registry.find(&self.setup.name) else {
            let config = Arc::new(Config { follow, ..Config::clone(&self.setup.config) });
            self.note("created");
            return registry.create(&self.setup.name, config, &Creator::default()).map(drop);
        };
        if handle.config().follow == follow {
            return Ok(());
        }
        self.note(("follows", &follow));
        self.world.ledger(|ledger| ledger.hit("a follower was attached or detached"));
        let edit = |config: &Config| Ok::<_, Error>(Config { follow, ..config.clone() });
        registry.configure(&handle, edit).await
    }

    /// Works until nothing is left, and compares the objects with those of the followed queue, which does not change any more.
    pub(super) async fn finish(&self, registry: &Registry) -> Result<(), Violation> {
        let Follow { queue, view, prefix, .. } = &*self.setup.follow;
        let parent = registry.list(None, usize::MAX, |_| true);
        let Some(parent) = parent.into_iter().find(|handle| handle.name().as_str() == &**queue) else {
            return Ok(());
        };
        let failed = |error: Error| format!("{}: {error}", self.setup.name);
        self.configure(registry, Some(self.setup.follow.clone())).await.map_err(failed)?;
        let handle = registry.find(&self.setup.name).ok_or("a follower is missing")?;
        for _ in 0..ROUNDS {
            let document = registry.document(&handle).await.map_err(failed)?;
            if document.follow.is_some_and(|follow| follow.obstacle == Some(Obstacle::HistoryLost)) {
                self.world.ledger(|ledger| ledger.hit("a follower of events lacked lost events"));
                self.configure(registry, None).await.map_err(failed)?;
                self.configure(registry, Some(self.setup.follow.clone())).await.map_err(failed)?;
            }
            while work(&handle, KEYS_MAX, How::Ack).await.is_some_and(|work| !work.items.is_empty()) {}
            let wanted = objects_in(&parent, *view, prefix).await;
            let known = objects_in(&handle, View::Known, "").await;
            if wanted.is_some() && wanted == known {
                self.world.ledger(|ledger| ledger.hit("a follower has all objects"));
                return Ok(());
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let (wanted, known) =
            (objects_in(&parent, *view, prefix).await, objects_in(&handle, View::Known, "").await);
        let status = registry.document(&handle).await.map(|document| (document.status, document.follow));
        Err(format!("{} knows {known:?}, and {queue} has {wanted:?}: {status:?}", self.setup.name))
    }
}
