//! The setting `version`: an object that is not newer than the newest state of its key is stale.

use deltaq_engine::limits::REMEMBERED_VERSIONS_MAX;
use deltaq_engine::pointer::Pointer;

use super::*;

const DAY_MS: u64 = 86_400_000;

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text, false).expect("a pointer")
}

/// A Delete whose object has a version.
fn deleted_at(name: &str, version: u32) -> ProduceCall {
    ProduceCall::new(DeltaKind::Deleted, name, Some(version))
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
        self.queue.configure(self.now(), Arc::new(config), None).expect("the settings may change");
        self.commit_and_check();
    }
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
    assert!((40_000..60_000).contains(&kept), "{kept} of 60,000 versions with keys of 1,006 bytes are kept");
}

#[test]
fn stale_objects_are_counted() {
    let mut fixture = Fixture::versioned();
    fixture.call(added("a", 5));
    assert!(fixture.is_stale(updated("a", 5)));
    fixture.replace(list(&[("a", 4)])).expect("no refusal");
    assert_eq!(fixture.counters.ignored_stale, 2);
}

#[test]
fn without_the_setting_no_version_is_remembered() {
    let mut fixture = Fixture::new();
    fixture.make_known(added("a", 5));
    fixture.delete_and_ack(deleted_at("a", 6));
    assert!(fixture.queue.queue_state().versions.is_empty());
}
