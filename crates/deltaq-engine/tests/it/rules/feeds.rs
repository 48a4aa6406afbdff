//! The rows of the change feeds, and the births of keys: which deletions a reader gets, and when a key was born.

use deltaq_engine::birth::Birth;
use deltaq_engine::feed::{Lag, Position, RowKind, RowLimit, RowPage, TombstoneLimits};
use deltaq_engine::id::Rv;
use deltaq_engine::view::{Passage, View};
use deltaq_types::{FollowedView, Kubernetes};

use super::*;

const LIMITS: TombstoneLimits = TombstoneLimits { count: 100, bytes: 1 << 20, age: Duration::from_hours(1) };

/// A queue with a feed from the first event on, whose key `a` has entered and left the view twice: the events in this order.
fn twice() -> (Fixture, [Rv; 4]) {
    let mut fixture = Fixture::new();
    fixture.queue.build_feed(View::Latest, LIMITS, usize::MAX);
    let rvs = [added("a", 1), deleted("a"), added("a", 2), deleted("a")].map(|call| {
        // Events between these, so that there are positions between them.
        fixture.call(added("other", 1));
        fixture.call(call);
        fixture.queue.resource_version()
    });
    (fixture, rvs)
}

fn rows(fixture: &Fixture, position: Position, rows: usize) -> RowPage {
    fixture.queue.rows(View::Latest, position, |_| true, RowLimit { rows, bytes: usize::MAX }).expect("rows")
}

/// The deletions of `a` in a page.
fn deletions(page: &RowPage) -> Vec<Rv> {
    let of_a = page.rows.iter().filter(|row| row.key == key("a"));
    of_a.filter(|row| row.kind == RowKind::Deleted).map(|row| row.rv).collect()
}

fn before(rv: Rv) -> Rv {
    Rv::new(rv.get() - 1)
}

#[test]
fn a_reader_gets_the_deletion_of_a_key_that_the_view_had_at_its_position() {
    let (fixture, [entered, left, entered_again, left_again]) = twice();
    for (after, expected) in [
        (before(entered), vec![]),
        (entered, vec![left_again]),
        (before(left), vec![left_again]),
        (left, vec![]),
        (before(entered_again), vec![]),
        (entered_again, vec![left_again]),
        (left_again, vec![]),
    ] {
        let page = rows(&fixture, Position::after(after), 100);
        assert_eq!((deletions(&page), page.is_last), (expected, true), "after {after}");
        let others = Position { has_others: true, ..Position::after(after) };
        let all = if after < left_again { vec![left_again] } else { vec![] };
        assert_eq!(deletions(&rows(&fixture, others, 100)), all, "after {after}, with other keys");
    }
}

#[test]
fn a_page_that_ends_while_a_key_is_absent_deletes_it() {
    let mut fixture = Fixture::new();
    fixture.call(added("a", 1));
    fixture.queue.build_feed(View::Latest, LIMITS, usize::MAX);
    let begin = fixture.queue.resource_version();
    fixture.call(deleted("a"));
    let left = fixture.queue.resource_version();
    fixture.call(added("b", 1));
    fixture.call(added("a", 2));
    let whole = rows(&fixture, Position::after(begin), 100);
    assert_eq!((deletions(&whole), whole.rows.len(), whole.is_last), (vec![], 2, true));
    let part = rows(&fixture, Position::after(begin), 1);
    assert_eq!((deletions(&part), part.rows.len(), part.is_last), (vec![left], 1, false));
    assert_eq!(part.lag, Some(Lag { from: begin, seen: fixture.queue.resource_version() }));
    fixture.call(deleted("a"));
    let rest = rows(&fixture, Position { lag: part.lag, ..Position::after(part.next) }, 100);
    assert_eq!((deletions(&rest), rest.is_last), (vec![], true), "the reader has lost the key already");
}

#[test]
fn a_reader_that_lags_is_not_told_of_a_key_that_came_and_went() {
    let (fixture, [entered, ..]) = twice();
    let first = rows(&fixture, Position::after(Rv::new(entered.get() - 2)), 0);
    assert_eq!((first.rows.len(), first.is_last), (0, false));
    // The reader is past the event with which the key entered, but never got it.
    let position = Position { lag: first.lag, ..Position::after(entered) };
    assert_eq!(deletions(&rows(&fixture, position, 100)), []);
}

#[test]
fn a_list_is_followed_by_the_deletions_of_its_keys() {
    let mut fixture = Fixture::new();
    for name in ["a", "b"] {
        fixture.call(added(name, 1));
    }
    fixture.queue.build_feed(View::Latest, LIMITS, usize::MAX);
    let since = fixture.queue.resource_version();
    let first = rows(&fixture, Position::listing(Rv::ZERO, since), 1);
    assert_eq!(first.rows.iter().map(|row| row.key.as_str()).collect::<Vec<_>>(), ["a"]);
    for name in ["a", "new"] {
        fixture.call(added("new", 1));
        fixture.call(deleted(name));
    }
    let rest = Position { lag: first.lag, ..Position::listing(first.next, since) };
    let rest = rows(&fixture, rest, 100);
    let found: Vec<_> = rest.rows.iter().map(|row| (row.kind, row.key.as_str())).collect();
    assert_eq!(found, [(RowKind::Added, "b"), (RowKind::Deleted, "a")]);
}

/// Gives the queue the setting `kubernetes` with a view, or takes it away.
fn set(fixture: &mut Fixture, view: Option<FollowedView>) -> Birth {
    let [group, version, kind, plural] = ["shop.example", "v1", "Price", "prices"].map(str::to_owned);
    let kubernetes = view.map(|view| Arc::new(Kubernetes { group, version, kind, plural, view }));
    let config = Config { kubernetes, ..(**fixture.queue.config()).clone() };
    fixture.queue.configure(fixture.now(), Arc::new(config), None).expect("allowed");
    fixture.commit_and_check();
    newest(fixture)
}

fn newest(fixture: &Fixture) -> Birth {
    Birth { rv: fixture.queue.resource_version(), at: fixture.queue.last_at() }
}

fn birth(fixture: &Fixture, view: View, name: &str) -> Option<Birth> {
    let object = fixture.queue.table().get(name)?.object_in(view)?;
    fixture.queue.with_birth(view, object).birth
}

#[test]
fn a_key_is_born_when_it_enters_the_view_or_with_the_setting() {
    let mut fixture = Fixture::new();
    fixture.call(added("old", 1));
    assert_eq!(birth(&fixture, View::Latest, "old"), None);
    let bytes = fixture.queue.held_bytes();
    let setting = set(&mut fixture, Some(FollowedView::Latest));
    assert_eq!(fixture.queue.held_bytes() - bytes, 16, "16 bytes a key");
    fixture.wait(1);
    fixture.call(added("new", 1));
    let born = newest(&fixture);
    fixture.call(updated("new", 2));
    assert_eq!(birth(&fixture, View::Latest, "old"), Some(setting));
    assert_eq!(birth(&fixture, View::Latest, "new"), Some(born));
    assert_eq!(birth(&fixture, View::Known, "new"), None, "of the other view");
    fixture.queue.build_feed(View::Latest, LIMITS, usize::MAX);
    let begin = fixture.queue.resource_version();
    for (name, of) in [("new", born), ("old", setting)] {
        fixture.call(deleted(name));
        let event = fixture.events.last().expect("an event");
        assert_eq!((event.views.latest, event.views.birth), (Some(Passage::Left), Some(of)));
    }
    let rows = rows(&fixture, Position::after(begin), 100).rows;
    assert_eq!(rows.iter().map(|row| row.birth).collect::<Vec<_>>(), [Some(born), Some(setting)]);
    fixture.call(added("new", 3));
    assert_eq!(birth(&fixture, View::Latest, "new"), Some(newest(&fixture)), "born again");
    let other = set(&mut fixture, Some(FollowedView::Known));
    assert_eq!(birth(&fixture, View::Known, "new"), None, "nobody has acknowledged it");
    let item = fixture.pop();
    fixture.ack(&item);
    assert!(birth(&fixture, View::Known, item.key.as_str()).is_none_or(|birth| birth.rv > other.rv));
    set(&mut fixture, None);
    assert_eq!(birth(&fixture, View::Latest, "new"), None);
}
