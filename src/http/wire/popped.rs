//! The reply to a pop, written without serde.
//!
//! serde writes the name of each member byte by byte, and timestamps and lease ids through `fmt`. That took a third
//! of the instructions of a cycle of add, pop and ack in batches (8,000 of 23,500 per key). Here, the names are part
//! of the text between two values. A test compares the text with [`deltaq_types::Popped`].

use std::cell::RefCell;

use deltaq_engine::Switches;
use deltaq_engine::command::Item;
use deltaq_engine::delta::Delta;
use deltaq_engine::id::Rv;
use deltaq_engine::lives::{LifeId, Lives};
use deltaq_engine::object::{ArrayKeys, Object, Operation, TooLarge};
use deltaq_service::Moment;
use deltaq_types::{LeaseOutcome, SettleAs, SettledDocument, Timestamp};

use super::difference::{compared, diff_bytes_max, difference, op};
use super::{millis, timestamp};
use crate::instant::Seconds;

/// The approximate sizes, in bytes, of a key without its objects, of a delta without its object, and of the result of
/// a settle.
const KEY_BYTES: usize = 256;
const DELTA_BYTES: usize = 128;
const SETTLED_BYTES: usize = 160;

thread_local! {
    /// The writers of deadlines and of the times of queueing. Consecutive replies usually have the same seconds.
    static INSTANTS: RefCell<(Seconds, Seconds)> = const { RefCell::new((Seconds::new(), Seconds::new())) };
}

/// What the parameter `with` adds to each item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct With {
    /// The known object.
    pub known: bool,
    /// The difference from the known object to the newest one, and which arrays it compares by element.
    pub diff: Option<ArrayKeys>,
}

/// The objects of a delivered key that a difference compares.
fn compared_in(item: &Item) -> Option<(&Object, &Object)> {
    compared(item.known.as_ref(), item.deltas.last())
}

/// The approximate length of the reply, in bytes.
#[must_use]
pub fn popped_bytes(items: &[Item], settled: &[SettledDocument], with: &With) -> usize {
    let bytes = items.iter().map(|item| {
        let deltas = item.deltas.iter().map(|delta| delta.object.bytes() + DELTA_BYTES);
        let known = item.known.as_ref().filter(|_| with.known).map_or(0, |known| known.object.bytes());
        let diff = compared_in(item)
            .filter(|_| with.diff.is_some())
            .map_or(0, |(old, new)| diff_bytes_max(old, new));
        KEY_BYTES + known + diff + deltas.sum::<usize>()
    });
    bytes.sum::<usize>() + SETTLED_BYTES * settled.len() + KEY_BYTES
}

/// The reply as of `moment`.
#[must_use]
pub fn popped(
    lives: &Lives,
    items: &[Item],
    settled: &[SettledDocument],
    with: &With,
    switches: Switches,
    moment: Moment,
) -> String {
    write(lives, popped_bytes(items, settled, with), moment, |reply| {
        reply.list("{\"items\":", items, |reply, item| reply.item(item, with));
        reply.list(",\"settled\":", settled, Reply::settled);
        reply.flag(",\"closed\":", Some(switches.closed));
        reply.flag(",\"paused\":", Some(switches.paused));
        reply.hold(switches.held_until.map(|until| timestamp(moment.wall(until))));
        reply.raw("}\n");
    })
}

/// A single key, as in the reply.
#[must_use]
pub(super) fn item_text(lives: &Lives, item: &Item, with: &With, moment: Moment) -> String {
    let bytes = popped_bytes(std::slice::from_ref(item), &[], with);
    write(lives, bytes, moment, |reply| reply.item(item, with))
}

fn write(lives: &Lives, bytes: usize, moment: Moment, fill: impl FnOnce(&mut Reply<'_>)) -> String {
    INSTANTS.with_borrow_mut(|(deadlines, queued)| {
        let text = String::with_capacity(bytes);
        let life = (LifeId::FORGOTTEN, String::new());
        let mut reply = Reply { text, lives, life, moment, deadlines, queued };
        fill(&mut reply);
        reply.text
    })
}

struct Reply<'s> {
    text: String,
    lives: &'s Lives,
    /// The life of the last lease and its text. Consecutive leases usually have the same life.
    life: (LifeId, String),
    moment: Moment,
    deadlines: &'s mut Seconds,
    queued: &'s mut Seconds,
}

impl Reply<'_> {
    fn item(&mut self, item: &Item, with: &With) {
        self.string("{\"key\":", item.key.as_str());
        self.raw(",\"lease\":{\"id\":\"");
        self.life(item.token.rv());
        self.number("-", item.token.rv().get());
        self.number("\",\"token\":", item.token.rv().get());
        match &item.worker {
            Some(worker) => self.string(",\"worker\":", worker),
            None => self.raw(",\"worker\":null"),
        }
        self.raw(",\"expires_at\":\"");
        self.deadlines.millis(self.moment.wall(item.deadline).as_micros(), &mut self.text);
        self.number("\",\"expires_in_ms\":", millis(item.deadline.since(self.moment.now)));
        self.number("},\"attempt\":", item.attempt);
        self.number(",\"failures\":", item.failures);
        self.flag(",\"is_in_initial_list\":", Some(item.is_in_initial_list));
        self.list(",\"deltas\":", &item.deltas, Self::delta);
        if let Some(known) = item.known.as_ref().filter(|_| with.known) {
            self.raw(",\"known\":");
            self.raw(known.object.as_str());
        }
        if let Some(array_keys) = &with.diff {
            self.diff(compared_in(item), array_keys);
        }
        self.raw("}");
    }

    fn diff(&mut self, compared: Option<(&Object, &Object)>, array_keys: &ArrayKeys) {
        match compared.map(|(old, new)| difference(old, new, array_keys)) {
            None => self.null(",\"diff\":"),
            Some(Err(TooLarge)) => self.raw(",\"diff\":null,\"diff_omitted\":\"too_large\""),
            Some(Ok(operations)) => self.list(",\"diff\":", &operations, Self::operation),
        }
    }

    fn operation(&mut self, operation: &Operation<'_>) {
        self.word("{\"op\":", Some(op(operation).as_str()));
        self.string(",\"path\":", &operation.path);
        for (name, value) in [(",\"value\":", operation.new), (",\"old\":", operation.old)] {
            if let Some(value) = value {
                self.raw(name);
                self.raw(value);
            }
        }
        self.raw("}");
    }

    fn life(&mut self, rv: Rv) {
        let id = self.lives.id_of(rv);
        if self.life.1.is_empty() || self.life.0 != id {
            self.life = (id, id.to_string());
        }
        self.text.push_str(&self.life.1);
    }

    fn delta(&mut self, delta: &Delta) {
        self.raw("{\"type\":\"");
        self.raw(delta.kind.as_str());
        self.number("\",\"resource_version\":", delta.rv.get());
        self.raw(",\"queued_at\":\"");
        self.queued.millis(self.moment.wall(delta.queued_at).as_micros(), &mut self.text);
        self.raw("\",\"object\":");
        self.raw(delta.object.as_str());
        if delta.final_state_unknown {
            self.raw(",\"final_state_unknown\":true");
        }
        if let Some(source) = delta.provenance.source() {
            self.string(",\"source\":", source);
        }
        if delta.coalesced > 0 {
            self.number(",\"coalesced\":", delta.coalesced);
        }
        if let Some(trace) = delta.provenance.trace() {
            self.string(",\"traceparent\":", &trace.to_string());
        }
        self.raw("}");
    }

    fn settled(&mut self, settled: &SettledDocument) {
        self.string("{\"lease_id\":", &settled.lease_id);
        self.word(",\"as\":", Some(settled.how.as_str()));
        self.word(",\"result\":", Some(settled.result.as_str()));
        self.word(",\"outcome\":", settled.outcome.map(LeaseOutcome::as_str));
        if settled.how == SettleAs::Extend {
            self.instant(",\"expires_at\":", settled.expires_at);
            self.number_or_null(",\"expires_in_ms\":", settled.expires_in_ms);
            self.number_or_null(",\"pending_deltas\":", settled.pending_deltas);
            self.flag(",\"deleted\":", settled.deleted);
        } else {
            self.number_or_null(",\"failures\":", settled.failures);
            self.instant(",\"due_at\":", settled.due_at);
            self.flag(",\"parked\":", settled.parked);
        }
        self.hold(settled.held_until);
        self.raw("}");
    }

    /// The end of a hold, if there is one.
    fn hold(&mut self, until: Option<Timestamp>) {
        if until.is_some() {
            self.instant(",\"held_until\":", until);
        }
    }

    fn list<T>(&mut self, before: &str, all: &[T], each: impl Fn(&mut Self, &T)) {
        self.raw(before);
        self.raw("[");
        for (index, one) in all.iter().enumerate() {
            if index > 0 {
                self.raw(",");
            }
            each(self, one);
        }
        self.raw("]");
    }

    fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn number(&mut self, before: &str, number: impl itoa::Integer) {
        self.raw(before);
        self.raw(itoa::Buffer::new().format(number));
    }

    fn number_or_null(&mut self, before: &str, number: Option<impl itoa::Integer>) {
        match number {
            Some(number) => self.number(before, number),
            None => self.null(before),
        }
    }

    fn string(&mut self, before: &str, value: &str) {
        self.text.push_str(before);
        self.text.push_str(&serde_json::to_string(value).unwrap_or_default());
    }

    /// Writes a text that has no characters to escape in JSON.
    fn word(&mut self, before: &str, word: Option<&str>) {
        let Some(word) = word else { return self.null(before) };
        self.raw(before);
        self.raw("\"");
        self.raw(word);
        self.raw("\"");
    }

    fn instant(&mut self, before: &str, at: Option<Timestamp>) {
        let Some(at) = at else { return self.null(before) };
        self.raw(before);
        self.raw("\"");
        self.deadlines.millis(at.as_micros(), &mut self.text);
        self.raw("\"");
    }

    fn flag(&mut self, before: &str, flag: Option<bool>) {
        self.raw(before);
        self.raw(flag.map_or("null", |flag| if flag { "true" } else { "false" }));
    }

    fn null(&mut self, before: &str) {
        self.raw(before);
        self.raw("null");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use deltaq_engine::delta::DeltaKind;
    use deltaq_engine::delta::Provenance;
    use deltaq_engine::id::{Source, Token, Worker};
    use deltaq_engine::key::Key;
    use deltaq_engine::known::Known;
    use deltaq_engine::lives::Life;
    use deltaq_engine::time::Time;
    use deltaq_engine::trace::{Trace, TraceContext};
    use deltaq_service::LeaseId;
    use deltaq_types::{LeaseDocument, Popped, PoppedItem, SettleResult};

    use super::*;
    use crate::http::wire::difference::documents;
    use crate::http::wire::{raw, timestamp};

    /// Two lives: the numbers up to 99, and those from 200 on.
    fn lives() -> Lives {
        let life = |id, first, last| Life { id: LifeId::new(id), first: Rv::new(first), last: Rv::new(last) };
        Lives::restore(vec![life(0xab, 1, 99), life(0xcd, 200, 200)]).unwrap()
    }

    fn delta(source: Option<&str>, at_us: u64) -> Delta {
        let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        Delta {
            kind: DeltaKind::Replaced,
            object: Object::from_valid("{\"key\": 1.50}"),
            rv: Rv::new(7),
            queued_at: Time::from_micros(at_us),
            final_state_unknown: source.is_some(),
            coalesced: u32::from(source.is_some()),
            provenance: Provenance::new(
                source.map(Source::from),
                None,
                trace.filter(|_| source.is_some()).map(Trace::new),
            ),
        }
    }

    fn document(item: &Item, with: &With, moment: Moment) -> PoppedItem {
        let diff = with.diff.as_ref().map(|keys| documents(compared_in(item), keys));
        let (diff, diff_omitted) = diff.unwrap_or_default();
        PoppedItem {
            key: item.key.as_str().to_owned(),
            lease: LeaseDocument {
                id: LeaseId { life: lives().id_of(item.token.rv()), token: item.token }.to_string(),
                token: item.token.rv().get(),
                worker: item.worker.as_deref().map(str::to_owned),
                expires_at: timestamp(moment.wall(item.deadline)),
                expires_in_ms: millis(item.deadline.since(moment.now)),
            },
            attempt: item.attempt,
            failures: item.failures,
            is_in_initial_list: item.is_in_initial_list,
            deltas: item.deltas.iter().map(|delta| crate::http::wire::delta(delta, moment)).collect(),
            known: item.known.as_ref().filter(|_| with.known).map(|known| raw(&known.object)),
            diff,
            diff_omitted,
        }
    }

    /// Results of all kinds.
    fn settled_rows() -> Vec<SettledDocument> {
        let due_at = Some(timestamp(Time::from_micros(1_795_298_400_001_999)));
        let row = |how, result| SettledDocument::new("\u{1}".to_owned(), how, result);
        vec![
            row(SettleAs::Ack, SettleResult::Ok),
            SettledDocument {
                failures: Some(3),
                due_at,
                parked: Some(false),
                ..row(SettleAs::Nack, SettleResult::Ok)
            },
            SettledDocument { held_until: due_at, ..row(SettleAs::Release, SettleResult::Ok) },
            SettledDocument {
                outcome: Some(LeaseOutcome::Expired),
                ..row(SettleAs::Done, SettleResult::Stale)
            },
            SettledDocument {
                expires_at: due_at,
                expires_in_ms: Some(10_001),
                pending_deltas: Some(2),
                deleted: Some(true),
                ..row(SettleAs::Extend, SettleResult::Ok)
            },
            SettledDocument {
                outcome: Some(LeaseOutcome::Unknown),
                ..row(SettleAs::Extend, SettleResult::Stale)
            },
        ]
    }

    #[test]
    fn the_text_equals_the_serialized_document() {
        let item = |key: &str, deltas: Vec<Delta>| Item {
            key: Key::new(key).unwrap(),
            token: Token::new(if deltas.is_empty() { Rv::new(9) } else { Rv::MAX }),
            deadline: Time::from_micros(1_795_298_400_001_999),
            worker: (!deltas.is_empty()).then(|| Worker::from("w\"1")),
            attempt: 3,
            failures: 2,
            is_in_initial_list: !deltas.is_empty(),
            known: (deltas.len() > 1).then(|| Known {
                object: Object::from_valid("{\"key\": 2e0, \"\u{e9}/\\\"\": null}"),
                rv: Rv::new(1),
                owner: None,
            }),
            deltas,
            waited: Duration::ZERO,
        };
        let (early, late) = (delta(None, 1_999_999), delta(Some("é\"\\\u{7f}"), u64::MAX));
        let items =
            [item("plain", Vec::new()), item("\"\\ü", vec![early.clone()]), item("b", vec![early, late])];
        let settled = settled_rows();
        let now = Time::from_micros(1_795_298_390_000_000);
        let day_us = 86_400_000_000;
        let known = With { known: true, diff: None };
        let diff = With { known: false, diff: Some(ArrayKeys::default()) };
        for (items, settled, with, lead_us, closed, paused) in [
            (&items[..], &settled[..], &known, 0, false, false),
            (&items[..], &[], &With::default(), day_us, true, true),
            (&items[..], &[], &diff, 0, false, false),
            (&[], &[], &diff, 0, true, false),
            (&[], &[], &known, 0, false, true),
        ] {
            let moment = Moment::ahead(now, lead_us);
            let documents = items.iter().map(|item| document(item, with, moment)).collect();
            let held_until = (closed != paused).then(|| now.plus(Duration::from_secs(30)));
            let document = Popped {
                items: documents,
                settled: settled.to_vec(),
                closed,
                paused,
                held_until: held_until.map(|until| timestamp(moment.wall(until))),
            };
            let expected = serde_json::to_string(&document).unwrap() + "\n";
            let switches = Switches { closed, paused, held_until };
            let text = popped(&lives(), items, settled, with, switches, moment);
            assert_eq!(text, expected);
            let parsed: Popped = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&parsed).unwrap() + "\n", text);
        }
    }
}
