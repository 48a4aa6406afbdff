//! The parked and delayed keys that operators select, and the token that an event names.

use deltaq_engine::command::{KeyMatch, Selected, SelectedKeys};

use super::*;

/// A queue with keys that were parked one after the other. Returns the version behind each.
fn parked(keys: &[&str]) -> (Fixture, Vec<Rv>) {
    let mut fixture = Fixture::new();
    let versions = keys.iter().map(|key| {
        fixture.call(added(key, 1));
        let item = fixture.pop();
        fixture.reject(&item);
        fixture.queue.resource_version()
    });
    let versions = versions.collect();
    (fixture, versions)
}

fn redrive(fixture: &mut Fixture, keys: &mut SelectedKeys) -> Selected {
    let progress = fixture.queue.redrive_step(fixture.now(), keys, usize::MAX);
    fixture.commit_and_check();
    let Ok(Progress::Done(selected)) = progress else { panic!("the redrive did not complete") };
    selected
}

fn matching(wanted: KeyMatch) -> SelectedKeys {
    KeySelection::Matching(wanted).into()
}

#[test]
fn a_filter_selects_the_keys_that_have_all_of_it() {
    let (mut fixture, _) = parked(&["eu-1", "eu-2", "us-1"]);
    let eu = KeyMatch { prefix: "eu-".to_owned(), ..KeyMatch::default() };
    let other = KeyMatch { error: Some("other".to_owned()), ..eu.clone() };
    assert_eq!(redrive(&mut fixture, &mut matching(other)).keys, 0);
    let bad = KeyMatch { error: Some("bad".to_owned()), ..eu };
    assert_eq!(redrive(&mut fixture, &mut matching(bad)).keys, 2);
    assert_eq!(fixture.ready_queue(), ["eu-1", "eu-2"]);
}

#[test]
fn a_filter_selects_the_keys_whose_change_is_old_enough() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.wait(1_000);
    let young = fixture.now();
    fixture.call(added("b", 1));
    for _ in 0..2 {
        let item = fixture.pop();
        fixture.reject(&item);
    }
    // The change of a is a second older, although both were parked at the same time.
    let before = Time::from_micros(young.as_micros() - 1);
    let old = KeyMatch { queued_before: Some(before), ..KeyMatch::default() };
    assert_eq!(redrive(&mut fixture, &mut matching(old)).keys, 1);
    assert_eq!(fixture.ready_queue(), ["a"]);
}

#[test]
fn a_dry_run_counts_and_changes_nothing() {
    let (mut fixture, versions) = parked(&["a", "b"]);
    let counted = redrive(&mut fixture, &mut matching(KeyMatch::default()).dry_run());
    assert_eq!(counted, Selected { keys: 2, begun: versions[1] });
    assert_eq!(fixture.queue.resource_version(), versions[1]);
}

#[test]
fn a_filter_with_the_counted_version_leaves_out_keys_that_were_parked_later() {
    let (mut fixture, versions) = parked(&["a", "b", "c"]);
    let until = KeyMatch { until: Some(versions[1]), ..KeyMatch::default() };
    // The key is parked again, later than the count.
    let mut only_a = KeySelection::named(Some(vec![key("a")])).into();
    assert_eq!(redrive(&mut fixture, &mut only_a).keys, 1);
    let item = fixture.pop();
    fixture.reject(&item);
    assert_eq!(redrive(&mut fixture, &mut matching(until)).keys, 1);
    assert_eq!(fixture.ready_queue(), ["b"]);
}

#[test]
fn a_filter_with_the_counted_version_leaves_out_keys_that_were_delayed_later() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1).after(60_000));
    let counted = fixture.queue.resource_version();
    fixture.call(added("b", 1).after(60_000));
    let until = KeyMatch { until: Some(counted), ..KeyMatch::default() };
    let progress = fixture.queue.promote_step(fixture.now(), &mut matching(until), usize::MAX);
    assert!(matches!(progress, Ok(Progress::Done(Selected { keys: 1, .. }))), "{progress:?}");
    fixture.commit_and_check();
    assert_eq!(fixture.ready_queue(), ["a"]);
}

#[test]
fn an_event_names_the_token_of_its_call_and_what_becomes_due_names_none() {
    let mut fixture = Fixture::new();
    fixture.queue.set_caller(Some("erp".into()));
    fixture.call(added("a", 1).after(1_000));
    fixture.now_ms += 1_000;
    fixture.call(added("b", 1));
    let by: Vec<_> =
        fixture.events.iter().map(|event| (event.kind.key().map(Key::as_str), event.by.as_deref())).collect();
    assert_eq!(by, [(Some("a"), Some("erp")), (Some("a"), None), (Some("b"), Some("erp"))]);
}
