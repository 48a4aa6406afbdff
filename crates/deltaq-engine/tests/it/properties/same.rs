//! Comparisons of the engine's results and states with those of the model.

use std::num::NonZero;

use deltaq_engine::command::{Item, Progress};
use deltaq_engine::delta::{Delta, Deltas};
use deltaq_engine::event::ReplaceCounts;
use deltaq_engine::known::Known;
use deltaq_engine::refusal::Refusal;
use deltaq_engine::schedule::{HeadStart, Place};
use deltaq_engine::snapshot::LastReplace;
use deltaq_engine::table::Entry;
use deltaq_engine::time::Time;
use deltaq_engine::trace::TraceContext;

use super::world::Difference;
use crate::model::{self, ModelReplaced, Name, OBJECTS, Refused};

/// Compares two values. The error describes the difference.
#[expect(clippy::needless_pass_by_value, reason = "most values are created for the comparison")]
pub(super) fn same<E: std::fmt::Debug + PartialEq>(
    name: &str,
    engine: E,
    model: E,
) -> Result<(), Difference> {
    if engine == model { Ok(()) } else { Err(format!("{name}: engine {engine:?}, model {model:?}")) }
}

pub(super) fn step_of<T, U>(progress: Progress<T>, done: impl FnOnce(T) -> U) -> model::Step<U> {
    match progress {
        Progress::More => model::Step::More,
        Progress::Compare(_) => panic!("the engine compares small objects itself"),
        Progress::NotYet => model::Step::NotYet,
        Progress::Done(answer) => model::Step::Done(done(answer)),
    }
}

pub(super) fn replaced(counts: ReplaceCounts) -> ModelReplaced {
    ModelReplaced {
        replaced: counts.replaced,
        deleted: counts.deleted,
        unchanged: counts.unchanged,
        skipped: counts.skipped,
        taken_over: counts.taken_over,
        stale: counts.stale,
    }
}

pub(super) fn refused(refusal: &Refusal) -> Refused {
    match *refusal {
        Refusal::QueueFull { keys, wanted, .. } => Refused::Full { keys, wanted },
        Refusal::KeyFull { field, index, .. } => Refused::KeyFull { field, index },
        Refusal::ObjectTooLarge { index, .. } => Refused::TooLarge { index },
        Refusal::WrongMode { .. } => Refused::WrongMode,
        Refusal::NoKnownObjects => Refused::NoKnownObjects,
        Refusal::Closed => Refused::Closed,
        Refusal::MassDelete { deletions, owned, counts, .. } => {
            Refused::MassDelete { deletions, owned, counts: replaced(counts) }
        }
        Refusal::NotEmpty { waiting } => Refused::NotEmpty { waiting },
        Refusal::ImmutableConfig { field, .. } => Refused::Immutable(field),
        Refusal::TooManyReplaces { .. } => Refused::TooManyReplaces,
        Refusal::SequenceBusy { number } => Refused::SequenceBusy { number },
        Refusal::ConfigChanged
        | Refusal::MemoryFull { .. }
        | Refusal::TooManySequences { .. }
        | Refusal::CountChanged { .. }
        | Refusal::PreconditionFailed { .. }
        | Refusal::Follower { .. } => panic!("no command of the script causes this"),
    }
}

pub(super) fn same_result<T: std::fmt::Debug + PartialEq>(
    name: &str,
    engine: Result<T, Refusal>,
    model: Result<T, Refused>,
) -> Result<(), Difference> {
    same(name, engine.map_err(|refusal| refused(&refusal)), model)
}

/// A trace of the model as the engine's type.
pub(super) fn context(number: u8) -> TraceContext {
    let text = format!("00-{:032x}-{:016x}-{number:02x}", u128::from(number) + 1, u64::from(number) + 1);
    TraceContext::parse(&text).expect("a valid trace context")
}

pub(super) fn same_deltas<'a>(
    name: &str,
    engine: impl Iterator<Item = &'a Delta>,
    model: &[model::ModelDelta],
) -> Result<(), Difference> {
    let engine: Vec<&Delta> = engine.collect();
    let equal = |(engine, model): (&&Delta, &model::ModelDelta)| {
        engine.kind == model.kind
            && engine.object.as_str() == OBJECTS[usize::from(model.content)].0
            && engine.rv.get() == model.rv
            && engine.queued_at.as_micros() == model.queued_at
            && engine.provenance.source().map(|source| &**source) == model.source
            && engine.provenance.owner().map(|owner| &**owner) == model.owner
            && engine.final_state_unknown == model.final_state_unknown
            && engine.coalesced == model.coalesced
            && engine.provenance.due().map(Time::as_micros) == model.due
            && engine.provenance.trace().map(|trace| **trace) == model.trace.map(context)
    };
    if engine.len() == model.len() && engine.iter().zip(model).all(equal) {
        return Ok(());
    }
    Err(format!("{name}: engine {engine:#?}, model {model:#?}"))
}

pub(super) fn same_known(engine: Option<&Known>, model: Option<model::ModelKnown>) -> Result<(), Difference> {
    let engine = engine.map(|known| (known.object.as_str(), known.rv.get(), known.owner.as_deref()));
    let model = model.map(|known| (OBJECTS[usize::from(known.content)].0, known.rv, known.owner));
    same("known", engine, model)
}

pub(super) fn same_item(engine: &Item, model: &model::ModelItem) -> Result<(), Difference> {
    same("popped key", engine.key.as_str(), model.key)?;
    same("token", engine.token.rv().get(), model.token)?;
    same("deadline", engine.deadline.as_micros(), model.deadline)?;
    same("attempt", engine.attempt, model.attempt)?;
    same("failures", engine.failures, model.failures)?;
    same("is_in_initial_list", engine.is_in_initial_list, model.is_in_initial_list)?;
    same("waited", model::micros(engine.waited), model.waited)?;
    same_known(engine.known.as_ref(), model.known)?;
    same_deltas("popped deltas", engine.deltas.iter(), &model.deltas)
}

pub(super) fn same_entry(entry: &Entry, name: Name, item: &model::Item) -> Result<(), Difference> {
    same("key", entry.key.as_str(), name)?;
    let deltas: [(&str, &Deltas, &[model::ModelDelta]); 2] =
        [("waiting", &entry.waiting, &item.waiting), ("leased", &entry.leased, &item.leased)];
    for (name, engine, model) in deltas {
        same_deltas(name, engine.iter(), model)?;
    }
    same_known(entry.known.as_deref(), item.known)?;
    let schedule_state = &entry.schedule_state;
    same_place(&schedule_state.place, &item.place)?;
    let delay = schedule_state.delay().map(|delay| (delay.due.as_micros(), delay.rv.get()));
    same("delay", delay, item.delay.map(|delay| (delay.due, delay.rv)))?;
    let backoff = schedule_state.backoff_end().map(|backoff| (backoff.due.as_micros(), backoff.rv.get()));
    same("backoff", backoff, item.backoff.map(|backoff| (backoff.due, backoff.rv)))?;
    same("window", schedule_state.window().map(|open| open.times.due().as_micros()), item.window_due())?;
    same("due", schedule_state.due().map(Time::as_micros), item.due())?;
    same("floor", schedule_state.floor().map(Time::as_micros), item.floor)?;
    let oldest_change = schedule_state.oldest_change().map(|change| (change.rv.get(), change.at.as_micros()));
    same("oldest change", oldest_change, item.changes.first().copied())?;
    let start = |head_start: HeadStart| (head_start.in_class().0, head_start.in_class().1.micros());
    same("head start", start(schedule_state.head_start()), item.start())?;
    let returning = schedule_state.lease().map(|lease| start(lease.head_start));
    let leased = item.lease().map(|lease| lease.starts.iter().copied().max().unwrap_or((0, 0)));
    same("leased head start", returning, leased)?;
    same("failures", schedule_state.failures, item.failures)?;
    same("attempt", schedule_state.attempt, item.attempt)?;
    same("last error", schedule_state.last_error(), item.last_error.as_deref())?;
    same("initial pending", entry.initial_pending.map(NonZero::get), item.initial_pending)?;
    let failure_expiry = schedule_state.failure_expiry().map(|(until, _)| until.as_micros());
    same("failure expiry", failure_expiry, item.failure_expiry.map(|(until, _)| until))
}

pub(super) fn same_replace(
    name: &str,
    engine: Option<&LastReplace>,
    model: Option<model::LastReplace>,
) -> Result<(), Difference> {
    let engine = engine.map(|last| {
        let ended = last.ended.map(Time::as_micros);
        (last.source.as_deref(), replaced(last.counts), last.started.as_micros(), ended, last.aborted)
    });
    let model = model.map(|last| (last.source, last.counts, last.started, last.ended, last.aborted));
    same(name, engine, model)
}

pub(super) fn same_place(engine: &Place, model: &model::Place) -> Result<(), Difference> {
    let equal = match (engine, model) {
        (Place::Idle, model::Place::Idle) | (Place::Parked, model::Place::Parked) => true,
        (Place::Ready(engine), model::Place::Ready(model)) => {
            engine.rv.get() == model.rv
                && engine.since.as_micros() == model.since
                && engine.added.as_micros() == model.added
        }
        (Place::Leased(engine), model::Place::Leased(model)) => {
            engine.token.rv().get() == model.token
                && engine.deadline.as_micros() == model.deadline
                && engine.since.as_micros() == model.since
                && model::micros(engine.length) == model.length
                && engine.worker.as_deref() == model.worker
                && engine.pop_id.as_deref() == model.pop_id
                && engine.new_change.map(Time::as_micros) == model.new_change
        }
        _ => false,
    };
    if equal { Ok(()) } else { Err(format!("place: engine {engine:?}, model {model:?}")) }
}
