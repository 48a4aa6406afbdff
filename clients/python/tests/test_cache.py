"""Tests of the store of an informer, and of the rows of watches."""

from __future__ import annotations

import random
import unittest

from deltaq import BadReply, ConnectionLost, DeletedFinalStateUnknown, Problem, RetryOptions, Store, ViewObject, calls
from deltaq.cache import Added, Cache, Deleted, Event, Updated
from deltaq.json import Json
from deltaq.outage import Outage
from deltaq.watching import Watching


def row(kind: str, key: str, version: int, **fields: object) -> Json:
    return {"type": kind, "key": key, "resource_version": version, "object": {"key": key, **fields}}


def bookmark(version: int, *, is_end: bool = False) -> Json:
    return {"type": "Bookmark", "resource_version": version} | ({"initial_events_end": True} if is_end else {})


class Rows(unittest.TestCase):
    def setUp(self) -> None:
        self.store = Store()
        self.cache = Cache(self.store)

    def apply(self, *rows: Json) -> list[Event]:
        return [event for each in rows for event in self.cache.apply(each)]

    def list(self, *rows: Json, version: int) -> list[Event]:
        self.cache.begin()
        return self.apply(*rows, bookmark(version, is_end=True))

    def test_a_list_counts_once_it_is_complete(self) -> None:
        self.assertEqual(self.cache.begin(), 0)
        self.assertEqual(self.apply(row("Added", "a", 1), bookmark(1)), [])
        self.assertEqual((len(self.store), self.cache.has_synced), (0, False))
        [event] = self.apply(bookmark(2, is_end=True))
        self.assertTrue(isinstance(event, Added) and event.is_in_initial_list)
        self.assertEqual((self.store.keys(), self.cache.has_synced, self.cache.begin()), (["a"], True, 2))

    def test_a_list_that_was_cut_off_is_forgotten(self) -> None:
        self.cache.begin()
        self.apply(row("Added", "gone", 1))
        self.list(row("Added", "a", 1), version=1)
        self.assertEqual(self.store.keys(), ["a"])

    def test_changes_lead_to_events(self) -> None:
        self.list(row("Added", "a", 1), version=1)
        added, updated, deleted = self.apply(row("Added", "b", 2), row("Updated", "a", 3, n=1), row("Deleted", "a", 4, n=1))
        self.assertTrue(isinstance(added, Added) and not added.is_in_initial_list)
        assert isinstance(updated, Updated) and isinstance(deleted, Deleted)
        self.assertEqual((updated.old.object, updated.new.object), ({"key": "a"}, {"key": "a", "n": 1}))
        self.assertNotIsInstance(deleted.entry, DeletedFinalStateUnknown)
        self.assertEqual(self.cache.begin(), 4)

    def test_an_update_of_an_unknown_key_is_an_add_and_its_deletion_nothing(self) -> None:
        self.list(version=1)
        [event] = self.apply(row("Updated", "a", 2), row("Deleted", "b", 3))
        self.assertIsInstance(event, Added)

    def test_a_version_counts_after_its_events(self) -> None:
        self.list(version=1)
        events = self.cache.apply(row("Added", "a", 2))
        next(events)
        events.close()
        self.assertEqual(self.cache.begin(), 1)
        self.assertEqual(self.apply(row("Added", "a", 2)), [])

    def test_a_new_list_after_410_finds_deletions(self) -> None:
        self.list(row("Added", "a", 1, n=1), row("Added", "b", 2), row("Added", "c", 3), version=3)
        self.cache.expire()
        self.assertEqual(self.cache.begin(), 0)
        deleted, updated = self.list(row("Added", "b", 2), row("Added", "c", 7, n=2), version=9)
        assert isinstance(deleted, Deleted) and isinstance(updated, Updated)
        self.assertIsInstance(deleted.entry, DeletedFinalStateUnknown)
        self.assertEqual((deleted.entry.key, deleted.entry.object), ("a", {"key": "a", "n": 1}))
        self.assertEqual(updated.new.object, {"key": "c", "n": 2})

    def test_a_deletion_whose_state_is_unknown_has_the_object_of_the_store(self) -> None:
        self.list(row("Added", "a", 1, n=1), version=1)
        [event] = self.apply({"type": "Deleted", "key": "a", "resource_version": 2, "final_state_unknown": True})
        assert isinstance(event, Deleted)
        self.assertEqual(event.entry.object, {"key": "a", "n": 1})
        self.assertIsInstance(event.entry, DeletedFinalStateUnknown)

    def test_an_error_row_is_a_problem(self) -> None:
        with self.assertRaises(Problem) as raised:
            self.apply({"type": "Error", "problem": {"status": 410, "code": "expired"}})
        self.assertEqual(raised.exception.code, "expired")

    def test_unknown_rows_are_ignored_and_broken_ones_are_not(self) -> None:
        self.list(version=1)
        self.assertEqual(self.apply(row("Renamed", "a", 2)), [])
        with self.assertRaises(BadReply):
            self.apply({"type": "Added"})

    def test_an_exception_of_an_index_function_is_no_bad_row(self) -> None:
        self.store = Store({"city": lambda entry: [entry["city"]]})
        self.cache = Cache(self.store)
        with self.assertRaises(KeyError):
            self.list(row("Added", "a", 1), version=1)
        self.list(row("Added", "a", 1, city="Rome"), version=1)
        with self.assertRaises(KeyError):
            self.apply(row("Updated", "a", 2))
        self.assertEqual([entry.resource_version for entry in self.store.by_index("city", "Rome")], [1])


class Indexes(unittest.TestCase):
    def test_values_at_a_pointer(self) -> None:
        store = Store({"tag": "/a~1b/0/tags", "kind": lambda entry: [entry["kind"]]})
        store.put(ViewObject("x", None, 1, {"a/b": [{"tags": ["red", 3, "blue"]}], "kind": "big"}))
        store.put(ViewObject("y", None, 1, {"a/b": 5, "kind": "big"}))
        self.assertEqual(store.index_values("tag"), ["blue", "red"])
        self.assertEqual([entry.key for entry in store.by_index("kind", "big")], ["x", "y"])
        with self.assertRaises(KeyError):
            store.by_index("color", "red")
        with self.assertRaises(ValueError):
            Store({"tag": "tags"})

    def test_indexes_equal_a_search_after_random_changes(self) -> None:
        chance = random.Random(7)
        store = Store({"n": "/n"})
        for version in range(2000):
            key = f"k{chance.randrange(20)}"
            if chance.random() < 0.3:
                store.remove(key)
            else:
                store.put(ViewObject(key, None, version, {"n": [str(chance.randrange(4)) for _ in range(chance.randrange(3))]}))
            for value in "0123":
                searched = sorted(entry.key for entry in store.list() if value in entry.object["n"])
                self.assertEqual([entry.key for entry in store.by_index("n", value)], searched)
        self.assertTrue(store.keys())


WATCH = calls.watch("q")


class EndsOfWatches(unittest.TestCase):
    def setUp(self) -> None:
        self.cache = Cache(Store())
        self.watching = Watching(self.cache, RetryOptions(first=1.0, random=lambda: 1.0), Outage(["http://localhost:1"]))

    def test_a_stream_with_changes_goes_on_at_once(self) -> None:
        for version in (5, 6):
            self.watching.received()
            list(self.cache.apply(bookmark(version, is_end=True)))
            self.assertEqual(self.watching.wait_after(None, WATCH), 0.0)

    def test_the_end_of_a_stream_that_has_worked_is_not_logged(self) -> None:
        self.watching.received()
        with self.assertNoLogs("deltaq"):
            self.watching.wait_after(ConnectionLost("lost"), WATCH)
        with self.assertLogs("deltaq", "WARNING") as logs:
            self.watching.wait_after(ConnectionLost("lost"), WATCH)
        self.assertEqual(logs.output, ['WARNING:deltaq:lost; the watch of the queue "q" is repeated'])

    def test_streams_without_changes_wait(self) -> None:
        for _ in range(2):
            self.watching.received()
            list(self.cache.apply(row("Added", "a", 1)))
            self.assertEqual(self.watching.wait_after(None, WATCH), 1.0, "a part of a list changes nothing")
        list(self.cache.apply(bookmark(5, is_end=True)))
        self.assertEqual(self.watching.wait_after(None, WATCH), 0.0)
        for _ in range(2):
            self.watching.received()
            list(self.cache.apply(bookmark(5)))
            self.assertEqual(self.watching.wait_after(None, WATCH), 1.0)

    def test_streams_without_rows_wait_longer_and_longer(self) -> None:
        self.assertEqual([self.watching.wait_after(None, WATCH) for _ in range(3)], [1.0, 2.0, 4.0])
        self.watching.received()
        self.assertEqual(self.watching.wait_after(ConnectionLost(), WATCH), 1.0)

    def test_a_list_with_a_row_that_cant_be_read_ends_in_the_end(self) -> None:
        waits = []
        for _ in range(8):
            self.watching.received()
            waits.append(self.watching.wait_after(BadReply(is_json=True), WATCH))
        self.assertEqual(waits, [1.0] * 7 + [None])
        list(self.cache.apply(bookmark(5, is_end=True)))
        self.assertEqual(self.watching.wait_after(BadReply(is_json=True), WATCH), 1.0)

    def test_410_lists_again(self) -> None:
        list(self.cache.apply(bookmark(5, is_end=True)))
        self.assertEqual(self.cache.begin(), 5)
        self.assertIsNotNone(self.watching.wait_after(Problem(410, {"code": "expired", "retryable": False}), WATCH))
        self.assertEqual(self.cache.begin(), 0)

    def test_a_queue_that_does_not_exist_is_waited_for(self) -> None:
        self.assertIsNotNone(self.watching.wait_after(Problem(404, {"code": "queue-not-found", "retryable": False}), WATCH))

    def test_other_refusals_are_final(self) -> None:
        self.assertIsNone(self.watching.wait_after(Problem(403, {"code": "forbidden", "retryable": False}), WATCH))


if __name__ == "__main__":
    unittest.main()
