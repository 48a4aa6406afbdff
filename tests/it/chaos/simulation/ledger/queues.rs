//! The promises about queues: their existence and their numbers.

use std::collections::{BTreeMap, VecDeque};

use deltaq_engine::Queue;
use deltaq_engine::config::Config;
use deltaq_engine::id::Rv;
use deltaq_service::Name;
use deltaq_types::Mode;

use super::keys::Shown;
use super::{Call, Kind, Ledger, Moment, QueueHistory, QueueRef, View};
use crate::chaos::simulation::Violation;

/// A sent call.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) queue: QueueRef,
    pub(crate) moment: Moment,
    /// The largest event number in a reply before the call.
    pub(crate) floor: Rv,
}

/// The objects or adds of a call: their keys and numbers.
pub(crate) type Objects = [(String, u64, Kind)];

impl Ledger {
    /// A caller found or created a queue. Whether its creation is durable is not known yet.
    pub(crate) fn found(&mut self, queue: &QueueRef, config: &Config) -> Result<(), Violation> {
        let name = self.names.entry(queue.0.clone()).or_default();
        let book = name.queues.entry(queue.1).or_insert_with(|| QueueHistory {
            mode: config.mode,
            knows: config.known_objects && config.mode != Mode::Keys,
            confirmed: false,
            deleting: false,
            gone: None,
            synced: None,
            dropping: 0,
            keys: BTreeMap::new(),
            served: VecDeque::new(),
        });
        if book.gone.is_some() { Err(format!("{} was deleted, and is found", queue.0)) } else { Ok(()) }
    }

    /// A caller sends a call.
    pub(crate) fn asks(&mut self, queue: &QueueRef) -> Asked {
        let moment = self.next_moment();
        let floor = self.names.get(&queue.0).map_or(Rv::ZERO, |name| name.high);
        Asked { queue: queue.clone(), moment, floor }
    }

    /// A caller gets a reply. `rv` is the newest event number in the reply.
    pub(crate) fn answered(&mut self, asked: &Asked, rv: Option<Rv>) -> Result<(), Violation> {
        let queue = self.queue(&asked.queue)?;
        queue.confirmed = true;
        if queue.gone.is_some_and(|gone| gone < asked.moment) {
            return Err(format!("{} was deleted, and answers", asked.queue.0));
        }
        let Some(rv) = rv else { return Ok(()) };
        if rv < asked.floor {
            return Err(format!("{} is at {rv} after {} was answered", asked.queue.0, asked.floor));
        }
        let name = self.names.entry(asked.queue.0.clone()).or_default();
        name.high = name.high.max(rv);
        Ok(())
    }

    /// The call contains objects.
    pub(crate) fn sends(&mut self, asked: &Asked, objects: &Objects) -> Result<(), Violation> {
        let queue = self.queue(&asked.queue)?;
        for (key, number, kind) in objects {
            let key = queue.keys.entry(key.clone()).or_default();
            if queue.mode == Mode::Latest && *kind == Kind::Delete {
                // A key that no consumer has seen is dropped.
                key.calls.values_mut().for_each(|call| call.excused = true);
            }
            let call = Call {
                kind: *kind,
                sent: asked.moment,
                floor: asked.floor,
                accepted: None,
                refused: false,
                excused: queue.dropping > 0,
                rv: None,
            };
            key.calls.insert(*number, call);
        }
        Ok(())
    }

    /// A caller sends a Replace. In mode latest it may drop keys that it does not list.
    pub(crate) fn replaces(&mut self, asked: &Asked, objects: &Objects) -> Result<(), Violation> {
        self.sends(asked, objects)?;
        let queue = self.queue(&asked.queue)?;
        if queue.mode == Mode::Latest {
            let others =
                queue.keys.iter_mut().filter(|(key, _)| !objects.iter().any(|(name, ..)| name == *key));
            others.flat_map(|(_, key)| key.calls.values_mut()).for_each(|call| call.excused = true);
        }
        Ok(())
    }

    /// The objects of the call were accepted. An add in mode keys is the event `rv`.
    pub(crate) fn accepted(&mut self, asked: &Asked, objects: &Objects, rv: Rv) -> Result<(), Violation> {
        let moment = self.next_moment();
        let queue = self.queue(&asked.queue)?;
        for (key, number, kind) in objects {
            let Some(key) = queue.keys.get_mut(key) else { continue };
            // A call during the Replace is newer than its list. Such a call had no reply when the Replace was sent.
            let says_more = |other: &Call| {
                let was_before = other.accepted.is_some_and(|moment| moment < asked.moment);
                other.kind != Kind::Listed && !other.refused && !was_before
            };
            let passed_over = *kind == Kind::Listed && key.calls.values().any(says_more);
            let Some(call) = key.calls.get_mut(number) else { continue };
            call.accepted.get_or_insert(moment);
            call.excused |= passed_over;
            if queue.mode == Mode::Keys {
                call.floor = rv;
            }
        }
        Ok(())
    }

    /// The objects of the call have changed nothing.
    pub(crate) fn refused(&mut self, asked: &Asked, objects: &Objects) -> Result<(), Violation> {
        let queue = self.queue(&asked.queue)?;
        for (key, number, _) in objects {
            let call = queue.keys.get_mut(key).and_then(|key| key.calls.get_mut(number));
            if let Some(call) = call {
                call.refused = true;
            }
        }
        Ok(())
    }

    /// A purge or discard begins: it may drop waiting deltas.
    pub(crate) fn drops(&mut self, queue: &QueueRef) -> Result<(), Violation> {
        let book = self.queue(queue)?;
        book.dropping += 1;
        book.keys.values_mut().flat_map(|key| key.calls.values_mut()).for_each(|call| call.excused = true);
        Ok(())
    }

    /// A purge or discard has ended.
    pub(crate) fn dropped(&mut self, queue: &QueueRef) -> Result<(), Violation> {
        self.queue(queue)?.dropping -= 1;
        Ok(())
    }

    /// The process has ended, with all its calls.
    pub(crate) fn ended(&mut self) {
        for queue in self.names.values_mut().flat_map(|name| name.queues.values_mut()) {
            queue.dropping = 0;
        }
    }

    /// A read shows a key of the queue.
    pub(crate) fn read(&mut self, asked: &Asked, key: &str, view: &View) -> Result<(), Violation> {
        let shown = Shown { asked: asked.moment, replied: self.next_moment(), now_us: self.now_us };
        let queue = self.queue(&asked.queue)?;
        let (mode, knows) = (queue.mode, queue.knows);
        let book = queue.keys.entry(key.to_owned()).or_default();
        let checked = book.read(view, mode, knows, shown);
        checked.map_err(|found| format!("{}, {key}: {found}", asked.queue.0))
    }

    /// Whether the queue has synced, as of a call.
    pub(crate) fn synced(&mut self, asked: &Asked, synced: bool) -> Result<(), Violation> {
        let moment = self.next_moment();
        let queue = self.queue(&asked.queue)?;
        if synced {
            queue.synced.get_or_insert(moment);
            return Ok(());
        }
        // A read that had begun before may be older.
        match queue.synced.filter(|replied| *replied < asked.moment) {
            Some(_) => Err(format!("{} had synced", asked.queue.0)),
            None => Ok(()),
        }
    }

    /// A caller sends a deletion of the queue.
    pub(crate) fn deletes(&mut self, queue: &QueueRef) -> Result<(), Violation> {
        self.queue(queue)?.deleting = true;
        Ok(())
    }

    /// A reply says that the queue is deleted.
    pub(crate) fn deleted(&mut self, queue: &QueueRef) -> Result<(), Violation> {
        let moment = self.next_moment();
        self.queue(queue)?.gone.get_or_insert(moment);
        Ok(())
    }

    /// Checks that exactly the confirmed queues exist that were not deleted.
    pub(crate) fn check_names(&self, find: impl Fn(&Name) -> Option<u32>) -> Result<(), Violation> {
        for (name, book) in &self.names {
            let found = find(name);
            for (incarnation, queue) in &book.queues {
                let is_there = found == Some(*incarnation);
                if queue.confirmed && !queue.deleting && !is_there {
                    return Err(format!("{name}: {incarnation:08x} was answered for and is not there"));
                }
                if queue.gone.is_some() && is_there {
                    return Err(format!("{name}: {incarnation:08x} was deleted and is there"));
                }
            }
        }
        Ok(())
    }

    /// Checks the content of a queue.
    pub(crate) fn check_queue(&self, (name, incarnation): &QueueRef, queue: &Queue) -> Result<(), Violation> {
        let book = self.names.get(name).and_then(|name| name.queues.get(incarnation));
        let Some(book) = book else { return Ok(()) };
        for (key, keys) in &book.keys {
            let checked = keys.check(&View::of(queue, key), book.mode, book.knows, Moment::MAX);
            let checked = checked.and_then(|()| keys.check_leases(self.now_us, queue));
            checked.map_err(|found| format!("{name}, {key}: {found}"))?;
        }
        Ok(())
    }
}
