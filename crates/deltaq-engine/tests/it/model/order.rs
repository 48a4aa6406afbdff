//! The order of ready keys: the head start of each change that waits is kept, and the order is sorted at each look.

use deltaq_engine::config::{Order, OrderValue};
use deltaq_engine::schedule::HeadStart;
use serde_json::Value;

use super::{Content, Item, Micros, Model, ModelCall, Name, OBJECTS, Place, micros};

/// A strict class, and a head start inside it in microseconds.
pub(crate) type Start = (i64, i64);

impl Model {
    /// The head start of the change of a call.
    pub(super) fn start_of_call(&self, call: &ModelCall, content: Option<Content>) -> Start {
        call.head_start.map_or_else(|| self.start_of(content), |head_start| (0, head_start))
    }

    /// The head start that the setting gives an object.
    pub(super) fn start_of(&self, content: Option<Content>) -> Start {
        let Some(Order { value: Some(value), .. }) = &self.config.order else { return (0, 0) };
        match value {
            // No object has the member.
            OrderValue::HeadStart { default, .. } => (0, default.micros()),
            OrderValue::Priority { step, .. } => {
                let text = content.map_or("{}", |content| OBJECTS[usize::from(content)].0);
                let object: Value = serde_json::from_str(text).expect("an object");
                let priority = object["v"].as_i64().filter(|priority| priority.abs() <= 100).unwrap_or(0);
                step.map_or((priority, 0), |step| (0, priority * micros(step).cast_signed()))
            }
        }
    }

    /// The head start of an object in a list.
    pub(super) fn start_of_list(&self, is_initial: bool, content: Content) -> Start {
        let of_list = self.config.order.as_ref().and_then(|order| order.initial_list);
        of_list.filter(|_| is_initial).map_or_else(|| self.start_of(Some(content)), given)
    }

    /// The head start of a Resync.
    pub(super) fn start_of_resync(&self, content: Content) -> Start {
        let of_resync = self.config.order.as_ref().and_then(|order| order.resync);
        of_resync.map_or_else(|| self.start_of(Some(content)), given)
    }

    /// A change with this head start has arrived, and `before` is its key without it.
    pub(super) fn join(&mut self, key: Name, start: Start, before: &Item, (rv, at): (u64, Micros)) {
        let events = self.is_events();
        let item = self.item(key);
        if !before.has_waiting() {
            item.starts.clear();
        }
        item.starts.push(start);
        let rises = before.has_waiting() && start.0 > before.start().0;
        if let Place::Ready(position) = &mut item.place
            && rises
            && before.is_ready()
            && !events
        {
            (position.rv, position.since) = (rv, at);
            self.hit("a ready key rises to another class");
        } else if before.has_waiting() {
            self.hit(if start > before.start() {
                "a head start improves"
            } else {
                "a head start does not improve"
            });
        }
    }

    /// Mode keys: an Add of a key that waits anyway. It counts only if it improves the place of the key.
    pub(super) fn add_dirty(&mut self, now: Micros, call: &ModelCall) {
        let start = self.start_of_call(call, None);
        let before = self.item(call.key).clone();
        if start > before.start() {
            let stamp = self.event(now);
            self.item(call.key).changes.push(stamp);
            self.join(call.key, start, &before, stamp);
            self.populated = true;
        }
        self.hit("Add of a dirty key");
    }

    /// Ready keys, first to last.
    pub(crate) fn ready(&self) -> Vec<Name> {
        let mut ready: Vec<(i64, i64, u64, Name)> = Vec::new();
        for (key, item) in &self.items {
            if let Place::Ready(position) = item.place {
                let arrival = if self.is_events() { item.waiting[0].queued_at } else { position.since };
                let (class, head_start) = item.start();
                ready.push((-class, arrival.cast_signed() - head_start, position.rv, key));
            }
        }
        ready.sort_unstable();
        ready.into_iter().map(|(.., key)| key).collect()
    }
}

impl Item {
    /// The head start of the key: the largest one of what waits.
    pub(crate) fn start(&self) -> Start {
        self.starts.iter().copied().max().unwrap_or((0, 0))
    }

    /// Whether a change waits that no worker holds.
    pub(super) fn has_waiting(&self) -> bool {
        match &self.place {
            Place::Idle => self.waits(),
            Place::Ready(_) | Place::Parked => true,
            Place::Leased(lease) => lease.new_change.is_some() || self.waits(),
        }
    }
}

fn given(head_start: HeadStart) -> Start {
    (0, head_start.micros())
}
