//! The setting `version`: an object that is not newer than the newest state of its key is stale.

use deltaq_engine::key::Pointer;
use deltaq_engine::limits::REMEMBERED_VERSIONS_MAX;

use super::*;

const DAY_MS: u64 = 86_400_000;

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text, false).expect("a pointer")
}

/// A Delete whose object has a version.
fn deleted_at(name: &str, version: u32) -> ProduceCall {
    ProduceCall::new(DeltaKind::Deleted, name, Some(version))
}

/// A Delete whose object has no version.
fn deleted_object(name: &str) -> ProduceCall {
    let mut call = ProduceCall::new(DeltaKind::Deleted, name, None);
    call.0.object = Some(Object::from_valid(r#"{"name":"a"}"#));
    call
}

impl Fixture {
    fn versioned() -> Self {
        Self::versioned_with(|_| {})
    }

    fn versioned_with(change: impl FnOnce(&mut Config)) -> Self {
        Self::with(|config| {
            config.version = Some(pointer("/v"));
            change(config);
        })
    }

    /// Makes one call; returns whether it is stale, and then nothing has changed.
    fn is_stale(&mut self, call: ProduceCall) -> bool {
        let before = self.queue.image();
        let produced = self.produce([call]).expect("no refusal");
        if produced.stale == 1 {
            assert_eq!((produced.queued, produced.ignored), (0, 0));
            assert_eq!(self.queue.image(), before);
        }
        produced.stale == 1
    }

    /// Whether an object of this version is stale and one of the next version would not be.
    fn is_at(&mut self, name: &str, version: u32) -> bool {
        self.is_stale(updated(name, version))
            && self.is_stale(added(name, version - 1))
            && self.counts_of_dry_run(name, version + 1) == (1, 0)
            && self.counts_of_dry_run(name, version) == (0, 1)
    }

    /// What a Replace by one object would count: replaced and stale.
    fn counts_of_dry_run(&mut self, name: &str, version: u32) -> (u64, u64) {
        let list = Replace { dry_run: true, ..list_of("dry", &[(name, version)]) };
        let counts = self.replace(list).expect("no refusal").counts;
        (counts.replaced, counts.stale)
    }

    /// Deletes a key and acknowledges everything.
    fn delete_and_ack(&mut self, call: ProduceCall) {
        assert!(self.call(call));
        let item = self.pop();
        self.ack(&item);
        assert_eq!(self.place(item.key.as_str()), "absent");
    }

    fn configure(&mut self, change: impl FnOnce(&mut Config)) {
        let mut config = (**self.queue.config()).clone();
        change(&mut config);
        self.queue.configure(self.now(), Arc::new(config)).expect("the settings may change");
        self.commit_and_check();
    }
}

#[test]
fn an_object_must_be_newer_than_the_newest_state_of_its_key() {
    let mut fixture = Fixture::versioned();
    assert!(!fixture.is_stale(added("a", 5)), "waiting");
    assert!(fixture.is_at("a", 5));
    let item = fixture.pop();
    assert!(fixture.is_at("a", 5), "leased");
    fixture.reject(&item);
    assert!(fixture.is_at("a", 5), "parked");
    assert_eq!(fixture.place("a"), "parked", "a stale call wakes nothing");
    fixture.redrive(None);
    let item = fixture.pop();
    fixture.ack(&item);
    assert!(fixture.is_at("a", 5), "known");
    assert!(!fixture.is_stale(updated("a", 6)), "a newer delta behind the known object");
    assert!(fixture.is_at("a", 6));
    assert_eq!(text(&fixture.pop()), "a: Updated 6");
    assert!(!fixture.is_stale(updated("a", 7)), "a newer delta behind leased ones");
    assert!(fixture.is_at("a", 7));
    assert_eq!(fixture.counters.ignored_stale, 12);
}

#[test]
fn the_objects_of_a_call_are_judged_one_after_the_other() {
    let mut fixture = Fixture::versioned();
    let calls =
        [added("a", 2), updated("a", 1), updated("b", 1), updated("a", 3), updated("a", 3), deleted("c")];
    let produced = fixture.produce(calls).expect("no refusal");
    assert_eq!((produced.queued, produced.ignored, produced.stale), (3, 1, 2));
    assert_eq!(fixture.waiting("a"), "Added 2, Updated 3");
}

#[test]
fn a_queue_without_the_setting_takes_any_object() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 5));
    assert!(!fixture.is_stale(updated("a", 4)));
    fixture.delete_and_ack(deleted_at("a", 3));
    assert!(fixture.queue.queue_state().versions.is_empty());
}

#[test]
fn a_stale_call_populates_the_queue_and_has_no_delay() {
    let mut fixture = Fixture::versioned();
    fixture.seed(&[("a", 5)]);
    assert!(!fixture.has_synced());
    assert_eq!(fixture.produce([updated("a", 5).after(1_000)]).expect("no refusal").stale, 1);
    assert!(fixture.has_synced());
    assert_eq!(fixture.place("a"), "known");
}

#[test]
fn a_listed_object_that_is_stale_neither_changes_nor_deletes_its_key() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5).from("erp"));
    fixture.call(added("b", 5).from("erp"));
    fixture.call(added("c", 5).from("erp"));
    fixture.call(added("d", 5).from("erp"));
    let result = fixture.replace(list_of("erp", &[("a", 4), ("b", 5), ("c", 6)])).expect("no refusal");
    assert_eq!(counts(&result), replaced([1, 1, 0, 0, 0]));
    assert_eq!(result.counts.stale, 2);
    assert_eq!((fixture.known("a"), fixture.waiting("a").as_str()), (Some(r#"{"v":5}"#), ""));
    assert_eq!(fixture.waiting("b"), "Added 5");
    assert_eq!(fixture.waiting("c"), "Added 5, Replaced 6");
    assert_eq!(fixture.waiting("d"), "Added 5, Deleted 5?");
    assert_eq!(fixture.counters.ignored_stale, 2);
    let again = fixture.replace(list_of("erp", &[("a", 4), ("b", 5), ("c", 6)])).expect("no refusal");
    assert_eq!((again.counts.replaced, again.counts.stale), (0, 3), "a repeated list changes nothing");
}

#[test]
fn a_list_with_the_same_version_takes_the_key_over_and_an_older_one_does_not() {
    let mut fixture = Fixture::versioned();
    fixture.call(added("a", 5).from("erp"));
    let older = fixture.replace(list_of("shop", &[("a", 4)])).expect("no refusal");
    assert_eq!((older.counts.stale, older.counts.taken_over), (1, 0));
    assert_eq!(fixture.owner("a"), Some("erp"));
    let same = fixture.replace(list_of("shop", &[("a", 5)])).expect("no refusal");
    assert_eq!((same.counts.stale, same.counts.taken_over), (1, 1));
    assert_eq!(fixture.owner("a"), Some("shop"));
    assert_eq!(fixture.waiting("a"), "Added 5");
}

#[test]
fn a_late_object_does_not_bring_back_a_deleted_key() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    fixture.delete_and_ack(deleted_at("a", 6));
    assert!(fixture.is_at("a", 6));
    fixture.crash();
    assert!(fixture.is_at("a", 6), "a restart remembers");
    let result = fixture.replace(list(&[("a", 5)])).expect("no refusal");
    assert_eq!((result.counts.replaced, result.counts.stale), (0, 1));
    assert_eq!(fixture.place("a"), "absent");
    assert!(!fixture.is_stale(added("a", 7)));
    assert_eq!(fixture.waiting("a"), "Added 7");
}

#[test]
fn a_deletion_that_is_not_newer_is_stale() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    assert!(fixture.is_stale(deleted_at("a", 4)));
    assert!(fixture.is_stale(deleted_at("a", 5)));
    fixture.delete_and_ack(deleted_at("a", 6));
    assert!(fixture.is_stale(deleted_at("a", 6)));
}

#[test]
fn a_deletion_without_a_version_is_applied_and_keeps_the_version_of_the_key() {
    for call in [deleted("a"), deleted_object("a")] {
        let mut fixture = Fixture::versioned();
        fixture.call(added("a", 5));
        let item = fixture.pop();
        fixture.ack(&item);
        fixture.delete_and_ack(call);
        assert!(fixture.is_at("a", 5));
    }
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5).from("erp"));
    fixture.replace(list_of("erp", &[])).expect("no refusal");
    let item = fixture.pop();
    fixture.ack(&item);
    assert!(fixture.is_at("a", 5), "the key was not in a list");
}

#[test]
fn the_version_of_a_deletion_counts_even_if_there_is_nothing_to_delete() {
    let mut fixture = Fixture::versioned();
    let produced = fixture.produce([deleted_at("a", 6)]).expect("no refusal");
    assert_eq!((produced.queued, produced.ignored, produced.stale), (0, 1, 0));
    assert!(fixture.is_at("a", 6));
    fixture.produce([deleted_at("a", 8)]).expect("no refusal");
    assert!(fixture.is_at("a", 8));
    fixture.crash();
    assert!(fixture.is_at("a", 8));
}

#[test]
fn of_two_deletions_the_newer_version_counts() {
    for is_leased in [false, true] {
        let mut fixture = Fixture::versioned();
        fixture.call(added("a", 5));
        fixture.call(deleted_at("a", 6));
        let item = is_leased.then(|| fixture.pop());
        assert!(!fixture.is_stale(deleted_at("a", 8)));
        assert!(fixture.is_at("a", 8));
        let item = item.unwrap_or_else(|| fixture.pop());
        assert_eq!(text(&item), "a: Added 5, Deleted 6");
        fixture.ack(&item);
        assert!(fixture.is_at("a", 8));
    }
}

#[test]
fn a_deletion_that_is_merged_when_a_lease_fails_keeps_its_version() {
    for deletes in [0, 1] {
        let mut fixture = Fixture::versioned_with(|config| config.mode = Mode::Latest);
        fixture.make_known(added("a", 5).from("erp"));
        fixture.call(deleted_at("a", 6).from("erp"));
        let item = fixture.pop();
        fixture.call(added("a", 7).from("erp"));
        if deletes == 0 {
            fixture.call(deleted("a"));
        } else {
            fixture.replace(list_of("erp", &[])).expect("no refusal");
        }
        fixture.nack(&item);
        assert_eq!(fixture.waiting("a"), "Deleted 6");
        assert!(fixture.is_at("a", 7));
    }
}

#[test]
fn a_key_that_mode_latest_drops_unseen_keeps_its_version() {
    for call in [deleted("a"), deleted_at("a", 6)] {
        let mut fixture = Fixture::versioned_with(|config| config.mode = Mode::Latest);
        let version = if call.0.object.is_some() { 6 } else { 5 };
        fixture.call(added("a", 5));
        fixture.call(call);
        assert_eq!(fixture.place("a"), "absent");
        assert!(fixture.is_at("a", version));
    }
    let mut fixture = Fixture::versioned_with(|config| config.mode = Mode::Latest);
    fixture.call(added("a", 5).from("erp"));
    fixture.replace(list_of("erp", &[])).expect("no refusal");
    assert_eq!(fixture.place("a"), "absent");
    assert!(fixture.is_at("a", 5));
}

#[test]
fn a_queue_without_known_objects_remembers_what_was_acknowledged() {
    let mut fixture = Fixture::versioned_with(|config| config.known_objects = false);
    fixture.make_known(added("a", 5));
    assert_eq!(fixture.place("a"), "absent");
    assert!(fixture.is_at("a", 5));
    fixture.make_known(updated("a", 6));
    assert!(fixture.is_at("a", 6));
}

#[test]
fn a_purge_and_a_discard_take_the_versions_with_the_changes() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    fixture.call(updated("a", 6));
    fixture.call(added("b", 6));
    fixture.purge();
    assert!(fixture.is_at("a", 5), "the key counts from its known object again");
    assert!(!fixture.is_stale(added("b", 1)), "the key begins anew");

    let mut fixture = Fixture::versioned();
    fixture.call(added("a", 7));
    fixture.park("a");
    fixture.discard();
    assert!(!fixture.is_stale(added("a", 1)));

    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    fixture.produce([deleted_at("a", 6), deleted_at("a", 8)]).expect("no refusal");
    assert!(fixture.is_at("a", 8));
    fixture.purge();
    assert!(fixture.is_at("a", 5), "the two deletions were one delta");

    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5).from("erp"));
    fixture.replace(list_of("erp", &[])).expect("no refusal");
    fixture.call(deleted_at("a", 8));
    assert_eq!(fixture.waiting("a"), "Deleted 8", "it has replaced the tombstone");
    fixture.purge();
    assert!(fixture.is_at("a", 5));
}

#[test]
fn a_purge_and_a_discard_keep_the_version_of_a_deletion_that_they_do_not_drop() {
    for discards in [false, true] {
        let mut fixture = Fixture::versioned();
        fixture.delete_and_ack_of("a");
        fixture.call(added("a", 8));
        if discards {
            fixture.park("a");
            fixture.discard();
        } else {
            fixture.purge();
        }
        assert_eq!(fixture.place("a"), "absent");
        assert!(fixture.is_at("a", 6), "what was dropped may be sent again, and nothing older");
        fixture.crash();
        assert!(fixture.is_at("a", 6));
    }
}

#[test]
fn a_purge_behind_a_lease_keeps_the_version_of_a_deletion_that_the_lease_covers() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    fixture.call(deleted_at("a", 6));
    let item = fixture.pop();
    assert!(!fixture.call(deleted_at("a", 8)), "the key is being deleted");
    fixture.call(added("a", 9));
    fixture.purge();
    assert!(fixture.is_at("a", 8));
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent");
    assert!(fixture.is_at("a", 8));
}

#[test]
fn a_purge_keeps_the_version_of_a_deletion_that_was_acknowledged_before_it() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    fixture.call(deleted_at("a", 6));
    let item = fixture.pop();
    fixture.call(added("a", 8));
    fixture.ack(&item);
    fixture.purge();
    assert!(fixture.is_at("a", 6));
}

#[test]
fn a_purge_of_merged_deletions_leaves_the_version_of_the_deletion_before_them() {
    let mut fixture = Fixture::versioned();
    fixture.delete_and_ack_of("a");
    fixture.produce([added("a", 7), deleted_at("a", 8), deleted_at("a", 9)]).expect("no refusal");
    assert!(fixture.is_at("a", 9));
    fixture.crash();
    fixture.purge();
    assert!(fixture.is_at("a", 6));
}

#[test]
fn a_discard_in_mode_events_keeps_the_version_of_a_deletion_behind_the_dropped_delta() {
    let mut fixture = Fixture::versioned_with(|config| config.mode = Mode::Events);
    fixture.produce([added("a", 7), deleted_object("a")]).expect("no refusal");
    fixture.park("a");
    fixture.discard();
    let item = fixture.pop();
    fixture.ack(&item);
    assert_eq!(fixture.place("a"), "absent");
    assert!(fixture.is_at("a", 7), "the deletion has no version of its own");
}

impl Fixture {
    /// A key that was deleted at version 6.
    fn delete_and_ack_of(&mut self, name: &str) {
        self.make_known(added(name, 5));
        self.delete_and_ack(deleted_at(name, 6));
    }
}

#[test]
fn a_seed_sets_the_version_of_its_keys() {
    let mut fixture = Fixture::versioned();
    fixture.delete_and_ack_of("a");
    fixture.seed(&[("a", 3)]);
    assert!(fixture.is_at("a", 3));
}

#[test]
fn a_resync_and_a_redrive_repeat_a_state_of_the_same_version() {
    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5));
    assert_eq!(fixture.resync(), 1);
    assert_eq!(fixture.waiting("a"), "Sync 5");
    assert!(fixture.is_at("a", 5));
    fixture.park("a");
    assert_eq!(fixture.redrive(None), 1);
    assert_eq!(fixture.place("a"), "ready");
}

#[test]
fn the_setting_may_change_at_any_time() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 5));
    fixture.call(added("b", 5));
    fixture.call(updated("b", 4));
    fixture.configure(|config| config.version = Some(pointer("/v")));
    assert!(fixture.is_at("a", 5));
    assert!(fixture.is_at("b", 4));
    fixture.delete_and_ack_of("c");
    fixture.configure(|config| config.version = Some(pointer("/w")));
    assert!(!fixture.is_stale(added("c", 1)), "versions of another pointer do not compare");
    fixture.configure(|config| config.version = Some(pointer("/v")));
    assert!(fixture.is_at("c", 1));
    fixture.configure(|config| config.version = None);
    assert!(!fixture.is_stale(updated("a", 1)));
}

#[test]
fn a_call_with_stale_objects_uses_its_sequence_number() {
    let mut fixture = Fixture::versioned();
    fixture.call(added("a", 5));
    let call = |fixture: &mut Fixture| {
        let calls = [fixture.with_version(updated("a", 4))];
        let sequence = Sequence { source: "erp".into(), number: 1 };
        let produced = fixture.queue.produce_once(fixture.now(), &calls, Some(&sequence));
        fixture.commit_and_check();
        produced.expect("no refusal")
    };
    let (first, second) = (call(&mut fixture), call(&mut fixture));
    assert_eq!((first.stale, first.duplicate), (1, false));
    assert_eq!((second.stale, second.duplicate), (0, true));
}

#[test]
fn versions_decide_between_a_running_replace_and_the_calls_meanwhile() {
    let mut fixture = Fixture::versioned();
    for name in ["a", "b", "c", "d", "e"] {
        fixture.make_known(added(name, 5).from("erp"));
    }
    let id = fixture.accept(list_of("erp", &[("a", 9), ("b", 9), ("c", 9)]));
    fixture.call(updated("a", 7));
    fixture.call(updated("b", 11));
    fixture.call(deleted("c"));
    assert!(fixture.is_stale(updated("d", 5)));
    fixture.call(updated("e", 6));
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Updated 7, Replaced 9", "the listed object is newer than the call");
    assert_eq!(fixture.waiting("b"), "Updated 11");
    assert_eq!(fixture.waiting("c"), "Deleted 5?", "a Delete without a version is newer than the list");
    assert_eq!(fixture.waiting("d"), "Deleted 5?", "a stale call keeps no key");
    assert_eq!(fixture.waiting("e"), "Updated 6");
    let counts = result.counts;
    assert_eq!((counts.replaced, counts.stale, counts.skipped, counts.deleted), (1, 1, 1, 1));
}

#[test]
fn if_the_setting_changes_while_a_replace_runs_all_calls_meanwhile_are_newer_than_its_list() {
    for settings in [&[None][..], &[Some("/w")], &[None, Some("/v")]] {
        let mut fixture = Fixture::versioned();
        for name in ["a", "b", "c"] {
            fixture.make_known(added(name, 5).from("erp"));
        }
        let id = fixture.accept(list_of("erp", &[("a", 9), ("b", 9), ("c", 9)]));
        fixture.delete_and_ack(deleted_at("b", 11));
        fixture.call(updated("a", 11));
        for setting in settings {
            fixture.configure(|config| config.version = setting.map(pointer));
        }
        let result = fixture.finish(id).expect("no refusal");
        assert_eq!(fixture.waiting("a"), "Updated 11", "{settings:?}");
        assert_eq!(fixture.place("b"), "absent", "{settings:?}");
        assert_eq!(fixture.waiting("c"), "Replaced 9", "{settings:?}");
        assert_eq!((result.counts.skipped, result.counts.replaced), (2, 1), "{settings:?}");
    }
}

#[test]
fn a_replace_judges_its_list_by_the_setting_with_which_it_was_accepted() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 5).from("erp"));
    fixture.make_known(added("b", 5).from("erp"));
    let id = fixture.accept(list_of("erp", &[("a", 9), ("b", 4)]));
    fixture.configure(|config| config.version = Some(pointer("/v")));
    fixture.call(updated("a", 7));
    fixture.finish(id).expect("no refusal");
    assert_eq!(fixture.waiting("a"), "Updated 7", "the list has objects without a checked version");
    assert_eq!(fixture.waiting("b"), "Replaced 4");

    let mut fixture = Fixture::versioned();
    fixture.make_known(added("a", 5).from("erp"));
    let id = fixture.accept(list_of("erp", &[("a", 4)]));
    fixture.configure(|config| config.version = None);
    let result = fixture.finish(id).expect("no refusal");
    assert_eq!((result.counts.replaced, result.counts.stale), (0, 1));
}

#[test]
fn a_full_queue_answers_a_stale_call() {
    let mut fixture = Fixture::versioned_with(|config| config.max_keys = 1);
    fixture.delete_and_ack_of("a");
    fixture.call(added("b", 1));
    assert!(fixture.is_stale(added("a", 5)));
    let produced = fixture.produce([updated("b", 2), added("a", 6), updated("b", 2)]).expect("no key is new");
    assert_eq!((produced.queued, produced.stale), (1, 2));
    let produced = fixture.produce([deleted_at("c", 3), added("c", 2)]).expect("no key is new");
    assert_eq!((produced.ignored, produced.stale), (1, 1));
    let refused = fixture.produce([added("a", 6), added("a", 7)]);
    assert!(matches!(refused, Err(Refusal::QueueFull { wanted: 1, .. })), "{refused:?}");
}

#[test]
fn a_full_key_of_mode_events_answers_a_stale_call() {
    let events = |config: &mut Config| (config.mode, config.max_deltas_per_key) = (Mode::Events, 2);
    let mut fixture = Fixture::versioned_with(events);
    fixture.produce([added("a", 5), updated("a", 5), updated("a", 6), updated("a", 4)]).expect("two deltas");
    assert_eq!(fixture.waiting("a"), "Added 5, Updated 6");
    assert!(fixture.is_stale(updated("a", 6)));
    assert!(fixture.is_stale(deleted_at("a", 6)));
    let refused = fixture.produce([updated("a", 6), updated("a", 7)]);
    assert!(matches!(refused, Err(Refusal::KeyFull { index: 1, .. })), "{refused:?}");
}

#[test]
fn remembered_versions_are_bounded_in_number_and_age() {
    let mut fixture = Fixture::versioned();
    let name = |number: usize| format!("k{number:06}");
    let calls: Vec<Call> = (0..=REMEMBERED_VERSIONS_MAX)
        .map(|number| fixture.with_version(deleted_at(&name(number), 6)))
        .collect();
    fixture.queue.produce(fixture.now(), &calls).expect("no refusal");
    fixture.commit_and_check();
    assert_eq!(fixture.queue.queue_state().versions.len(), REMEMBERED_VERSIONS_MAX);
    assert!(!fixture.is_stale(added(&name(0), 1)), "the oldest is forgotten");
    assert!(fixture.is_stale(added(&name(1), 1)));

    fixture.wait(DAY_MS);
    fixture.produce([deleted_at("b", 6)]).expect("no refusal");
    assert!(fixture.is_stale(added(&name(2), 1)), "a day is not over");
    fixture.wait(1);
    fixture.produce([deleted_at("c", 6)]).expect("no refusal");
    assert_eq!(fixture.queue.queue_state().versions.len(), 2);
    assert!(fixture.is_stale(added("b", 6)));
}

#[test]
fn remembered_versions_are_bounded_in_bytes() {
    let mut fixture = Fixture::versioned();
    let long = "x".repeat(1_000);
    let calls: Vec<Call> = (0..60_000)
        .map(|number| fixture.with_version(deleted_at(&format!("{number:06}{long}"), 6)))
        .collect();
    fixture.queue.produce(fixture.now(), &calls).expect("no refusal");
    fixture.commit_and_check();
    let kept = fixture.queue.queue_state().versions.len();
    assert!((50_000..60_000).contains(&kept), "{kept} of 60,000 versions with keys of 1,006 bytes are kept");
}
