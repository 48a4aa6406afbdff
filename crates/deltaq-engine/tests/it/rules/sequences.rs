//! Sequence numbers: each call of a source is applied once, in order.

use deltaq_engine::limits::{REPLACES_MAX, RV_MAX, SOURCES_MAX};

use super::*;

impl Fixture {
    /// Makes calls with a sequence number.
    fn numbered(
        &mut self,
        source: &str,
        number: u64,
        calls: impl IntoIterator<Item = ProduceCall>,
    ) -> Result<Produced, Refusal> {
        let calls: Vec<Call> = calls.into_iter().map(|call| self.with_version(call)).collect();
        let sequence = Sequence { source: source.into(), number };
        let result = self.queue.produce_once(self.now(), &calls, Some(&sequence), &[]);
        self.commit_and_check();
        result
    }

    /// Whether a call with this number changes nothing.
    fn repeats(&mut self, source: &str, number: u64, call: ProduceCall) -> bool {
        let before = self.queue.resource_version();
        let produced = self.numbered(source, number, [call]).expect("no refusal");
        assert_eq!(produced.duplicate, self.queue.resource_version() == before);
        produced.duplicate
    }

    fn sequence(&self, source: &str) -> Option<u64> {
        let sources = self.queue.sources_after(None, usize::MAX);
        sources.into_iter().find(|state| &*state.source == source)?.history?.sequence
    }
}

fn numbered_list(source: &str, number: u64, items: &[(&str, u32)]) -> Replace {
    Replace { sequence: Some(number), ..list_of(source, items) }
}

#[test]
fn the_first_event_of_a_call_carries_its_number() {
    let mut fixture = Fixture::new();
    fixture.numbered("erp", 5, [added("a", 1), added("b", 1)]).expect("no refusal");
    let sequence = Sequence { source: "erp".into(), number: 5 };
    let carried: Vec<_> = fixture.events.iter().map(|event| event.sequence.clone()).collect();
    assert_eq!(carried, [Some(sequence), None]);
}

#[test]
fn a_replace_counts_when_it_has_ended() {
    let mut fixture = Fixture::new();
    let id = fixture.accept(numbered_list("erp", 7, &[("a", 1), ("b", 1)]));
    while fixture.place("a") == "absent" {
        fixture.step(id).expect("no refusal");
    }
    assert_eq!(fixture.sequence("erp"), None);
    fixture.crash();
    assert_eq!(fixture.sequence("erp"), None, "the Replace was aborted");
    let repeated = fixture.replace(numbered_list("erp", 7, &[("a", 1), ("b", 1)])).expect("no refusal");
    assert!(!repeated.duplicate);
    assert_eq!((fixture.waiting("b").as_str(), fixture.sequence("erp")), ("Replaced 1", Some(7)));
    for _ in 0..2 {
        let before = fixture.queue.resource_version();
        let again = fixture.replace(numbered_list("erp", 7, &[("c", 1)])).expect("no refusal");
        assert_eq!((again.duplicate, counts(&again)), (true, replaced([0; 5])));
        assert_eq!(fixture.queue.resource_version(), before);
        fixture.crash();
    }
    assert!(fixture.repeats("erp", 6, added("a", 2)), "Replaces and calls share the numbers");
    assert_eq!(fixture.counters.ignored_repeated, 3);
}

#[test]
fn while_a_replace_with_a_number_runs_the_next_numbers_of_its_source_are_refused() {
    let mut fixture = Fixture::new();
    fixture.numbered("erp", 1, [added("z", 1).from("erp")]).expect("no refusal");
    let id = fixture.accept(numbered_list("erp", 2, &[("a", 1)]));
    let busy = Err(Refusal::SequenceBusy { number: 2 });
    assert_eq!(fixture.numbered("erp", 2, [added("a", 2)]), busy);
    assert_eq!(fixture.numbered("erp", 3, [added("a", 2)]), busy);
    let other = fixture.queue.accept_replace(fixture.now(), numbered_list("erp", 3, &[("a", 3)]));
    assert_eq!(other.map(drop), busy.map(drop));
    assert!(fixture.repeats("erp", 1, added("a", 4)), "a repeated call is answered");
    assert!(!fixture.repeats("shop", 3, added("b", 1)));
    fixture.call(added("c", 1).from("erp"));
    fixture.finish(id).expect("no refusal");
    assert!(!fixture.repeats("erp", 3, added("a", 5)));
    assert_eq!(fixture.waiting("a"), "Replaced 1, Added 5");
}

#[test]
fn a_refused_replace_and_a_dry_run_do_not_count() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).from("erp"));
    let guarded = Replace { max_deletes: Some(0), ..numbered_list("erp", 1, &[]) };
    assert!(matches!(fixture.replace(guarded), Err(Refusal::MassDelete { .. })));
    let dry = || Replace { dry_run: true, ..numbered_list("erp", 1, &[("a", 2)]) };
    let id = fixture.accept(dry());
    fixture.numbered("erp", 0, [added("b", 1)]).expect("a dry run blocks nothing");
    assert!(!fixture.finish(id).expect("no refusal").duplicate);
    assert_eq!(fixture.sequence("erp"), Some(0));
    fixture.replace(numbered_list("erp", 1, &[("a", 2)])).expect("no refusal");
    assert!(fixture.replace(dry()).expect("no refusal").duplicate, "the call would change nothing");
}

#[test]
fn a_repeated_replace_is_answered_at_once_while_others_wait() {
    let mut fixture = Fixture::new();
    fixture.replace(numbered_list("erp", 1, &[("a", 1)])).expect("no refusal");
    let ids: Vec<ReplaceId> = (0..REPLACES_MAX).map(|_| fixture.accept(list(&[("b", 1)]))).collect();
    let refused = fixture.queue.accept_replace(fixture.now(), list(&[("b", 1)]));
    assert!(matches!(refused, Err(Refusal::TooManyReplaces { .. })), "{refused:?}");
    let repeated = fixture.replace(numbered_list("erp", 1, &[("a", 2)])).expect("it changes nothing");
    assert!(repeated.duplicate);
    for id in ids {
        fixture.finish(id).expect("no refusal");
    }
    assert_eq!(fixture.waiting("a"), "Replaced 1");
}

#[test]
fn a_source_with_a_number_is_never_forgotten() {
    let mut fixture = Fixture::new();
    fixture.call(added("plain", 1).from("plain"));
    let name = |number: usize| format!("s{number:04}");
    for number in 2..SOURCES_MAX {
        fixture
            .queue
            .produce_once(
                fixture.now(),
                &[added("a", 1).0],
                Some(&Sequence { source: name(number).as_str().into(), number: 1 }),
                &[],
            )
            .expect("no refusal");
    }
    fixture.commit_and_check();
    // Two places are left, and one of them is for the Replace that has not ended.
    let id = fixture.accept(numbered_list(&name(0), 1, &[("b", 1)]));
    fixture.numbered(&name(1), 1, [added("a", 1)]).expect("the source without a number is forgotten");
    let full = Err(Refusal::TooManySequences { limit: SOURCES_MAX });
    assert_eq!(fixture.numbered("new", 1, [added("a", 1)]), full);
    fixture.finish(id).expect("no refusal");
    assert_eq!(fixture.numbered("new", 1, [added("a", 1)]), full);
    let list = fixture.queue.accept_replace(fixture.now(), numbered_list("new", 1, &[("b", 1)]));
    assert_eq!(list.map(drop), full.map(drop));

    fixture.call(added("a", 2).from("new"));
    assert_eq!(fixture.sequence("new"), None, "a source without a number is not refused");
    fixture.crash();
    for number in 0..SOURCES_MAX {
        assert_eq!(fixture.sequence(&name(number)), Some(1));
    }
    assert!(fixture.repeats(&name(2), 1, added("a", 3)));
    assert!(!fixture.repeats(&name(2), 2, added("a", 3)));
}

#[test]
fn an_operator_resets_the_number_of_a_source() {
    let mut fixture = Fixture::new();
    let renumber = |fixture: &mut Fixture, source: &str, sequence: Option<u64>| {
        let done = fixture.queue.renumber(fixture.now(), &source.into(), sequence);
        fixture.commit_and_check();
        done
    };
    assert_eq!(renumber(&mut fixture, "erp", None), Ok(None), "the queue has no such source");
    fixture.numbered("erp", RV_MAX, [added("a", 1).from("erp")]).expect("no refusal");
    assert!(fixture.repeats("erp", 7, added("b", 1)));
    let source = renumber(&mut fixture, "erp", None).expect("no refusal").expect("a source");
    assert_eq!((source.keys, source.history.and_then(|history| history.sequence)), (1, None));
    assert!(!fixture.repeats("erp", 7, added("b", 1)));
    renumber(&mut fixture, "erp", Some(20)).expect("no refusal");
    assert!(fixture.repeats("erp", 20, added("c", 1)));
    let before = fixture.queue.resource_version();
    renumber(&mut fixture, "erp", Some(20)).expect("no refusal");
    assert_eq!(fixture.queue.resource_version(), before, "nothing changes, so nothing is recorded");
    fixture.accept(numbered_list("erp", 30, &[("a", 1)]));
    assert_eq!(renumber(&mut fixture, "erp", None), Err(Refusal::SequenceBusy { number: 30 }));
}
