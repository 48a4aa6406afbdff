"""Tests of the leases that a worker holds."""

from __future__ import annotations

import unittest
from dataclasses import replace

from deltaq import Ack, Delta, Done, Item, Lease, LeaseLost, Nack, Reject, Release, RetryOptions
from deltaq.leases import SETTLE_AFTER_SECONDS, Held, Leases, extend_policy
from deltaq.models import Settled
from deltaq.outcomes import DONE_ELSEWHERE, ERROR_BYTES_MAX, log_failure, outcome_of


def item(name: str, lease_ms: int = 3000) -> Item:
    return Item(name, Lease(name, 1, "w", "", lease_ms), 1, 0, False, [])


def extended(name: str, lease_ms: int, pending_deltas: int = 0, deleted: bool = False) -> Settled:
    return Settled(name, "extend", "ok", expires_in_ms=lease_ms, pending_deltas=pending_deltas, deleted=deleted)


ITEM = item("a")


class LeasesOfAWorker(unittest.TestCase):
    def setUp(self) -> None:
        self.leases = Leases()

    def take(self, *names: str) -> list[Held]:
        return self.leases.take([item(name) for name in names], 0.0)

    def test_a_lease_is_extended_at_a_third(self) -> None:
        self.take("a")
        self.assertEqual(self.leases.extend_at(), 1.0)
        self.assertEqual(self.leases.take_extends(0.9), [])
        self.assertEqual(self.leases.take_extends(1.0), ["a"])
        self.leases.extended([extended("a", 6000, 2, True)], 1.0)
        self.assertEqual(self.leases.extend_at(), 3.0)

    def test_an_extend_shows_newer_changes(self) -> None:
        [held] = self.take("a")
        self.leases.extended([extended("a", 3000, 2, True)], 1.0)
        self.assertEqual((held.context.pending_deltas, held.context.is_deleted), (2, True))

    def test_a_failed_extend_is_repeated_soon(self) -> None:
        self.take("a")
        self.leases.extend_failed(1.0, 0.5)
        self.assertEqual(self.leases.extend_at(), 1.5)
        policy = extend_policy(RetryOptions(first=5.0, max=60.0, random=lambda: 1.0))
        self.assertEqual([policy.backoff(1), policy.backoff(9)], [1.0, 1.0])

    def test_two_extends_without_a_reply_fit_into_the_rest_of_the_shortest_lease(self) -> None:
        self.leases.take([item("a", 30_000)], 0.0)
        self.take("b")
        self.assertEqual(self.leases.extend_patience(1.0), 0.75)
        self.assertEqual(self.leases.extend_patience(1.75), 0.375)

    def test_a_lease_that_was_not_extended_is_lost(self) -> None:
        lost: list[str] = []
        [held] = self.take("a")
        held.on_lost = lambda: lost.append("a")
        self.leases.start(held)
        self.assertEqual(self.leases.lost_at(), 2.5)
        self.leases.expire(2.4)
        self.assertFalse(held.context.is_lost)
        held.context.raise_if_lost()
        self.leases.expire(2.5)
        self.assertEqual((held.context.is_lost, lost), (True, ["a"]))
        with self.assertRaises(LeaseLost):
            held.context.raise_if_lost()

    def test_a_long_lease_is_lost_five_seconds_before_its_end(self) -> None:
        self.leases.take([item("a", 60_000)], 0.0)
        self.assertEqual(self.leases.lost_at(), 55.0)
        self.leases.extended([extended("a", 60_000)], 20.0)
        self.assertEqual(self.leases.lost_at(), 75.0)

    def test_a_lost_lease_is_not_settled(self) -> None:
        [held] = self.take("a")
        self.leases.start(held)
        with self.assertLogs("deltaq", "WARNING") as logs:
            self.leases.extended([Settled("a", "extend", "stale")], 1.0)
        self.assertIn("the lease a of key 'a' is lost", logs.output[0])
        self.leases.finish(held, Ack(), 2.0)
        self.assertEqual(self.leases.take_settles(), [])
        self.assertEqual((self.leases.running, self.leases.extend_at()), (0, None))

    def test_an_outcome_that_waits_is_sent_although_its_lease_may_have_ended(self) -> None:
        for is_stale in (False, True):
            with self.subTest(is_stale=is_stale):
                self.setUp()
                [held] = self.take("a")
                self.leases.start(held)
                self.leases.finish(held, Ack(), 1.0)
                if is_stale:
                    self.leases.extended([Settled("a", "extend", "stale")], 1.0)
                self.leases.expire(9.0)
                self.assertEqual((held.context.is_lost, self.leases.lost_at()), (False, None))
                # The lease may still be saved, unless the server says that it has ended.
                self.assertEqual(self.leases.take_extends(9.0), [] if is_stale else ["a"])
                self.assertGreater(self.leases.extend_patience(9.0), 1.0)
                self.assertEqual(self.leases.take_settles(), [{"lease_id": "a", "as": "ack"}])

    def test_outcomes_of_a_call_without_a_reply_are_sent_again(self) -> None:
        first, second = self.take("a", "b")
        self.leases.start(first)
        self.leases.start(second)
        self.leases.finish(first, Ack(), 1.0)
        entries = self.leases.take_settles()
        self.leases.finish(second, Ack(), 2.0)
        self.leases.unsettled(entries)
        self.assertEqual(self.leases.settle_at(), 1.0 + SETTLE_AFTER_SECONDS)
        self.assertEqual([entry["lease_id"] for entry in self.leases.take_settles()], ["a", "b"])

    def test_a_lost_lease_is_not_started(self) -> None:
        [held] = self.take("a")
        self.leases.expire(9.0)
        self.assertFalse(self.leases.start(held))
        self.assertEqual(self.leases.running, 0)

    def test_outcomes_are_sent_once(self) -> None:
        first, second = self.take("a", "b")
        self.leases.start(first)
        self.leases.start(second)
        self.leases.finish(first, Ack(), 1.0)
        self.leases.finish(second, Nack("no", delay="5s"), 1.0)
        self.assertEqual(self.leases.settle_at(), 1.0 + SETTLE_AFTER_SECONDS)
        entries = self.leases.take_settles()
        self.assertEqual(entries, [{"lease_id": "a", "as": "ack"}, {"lease_id": "b", "as": "nack", "delay": "5s", "error": "no"}])
        self.assertEqual(self.leases.take_settles(), [])
        self.assertTrue(self.leases.has_settles)
        stale = self.leases.settled(entries, [Settled("a", "ack", "ok"), Settled("b", "nack", "stale", "expired")])
        self.assertEqual([result.lease_id for result in stale], ["b"])
        self.assertFalse(self.leases.has_settles)

    def test_leases_are_extended_until_they_are_settled(self) -> None:
        [held] = self.take("a")
        self.leases.start(held)
        self.leases.finish(held, Ack(), 0.5)
        self.leases.take_settles()
        self.assertEqual(self.leases.take_extends(1.0), ["a"])

    def test_a_settle_that_is_on_its_way_is_not_lost(self) -> None:
        [held] = self.take("a")
        self.leases.start(held)
        self.leases.finish(held, Ack(), 0.5)
        entries = self.leases.take_settles()
        self.leases.expire(9.0)
        self.assertFalse(held.context.is_lost)
        self.leases.settled(entries, [])
        self.assertIsNone(self.leases.extend_at())

    def test_a_stop_releases_what_no_handler_has_begun(self) -> None:
        first, _ = self.take("a", "b")
        self.leases.start(first)
        self.leases.stop()
        self.leases.release_waiting(1.0)
        self.assertEqual(self.leases.take_settles(), [{"lease_id": "b", "as": "release"}])
        self.assertTrue(first.context.is_stopping)


class Outcomes(unittest.TestCase):
    def test_none_is_an_ack(self) -> None:
        self.assertEqual(outcome_of(None, ITEM).settle("a"), {"lease_id": "a", "as": "ack"})

    def test_an_exception_is_a_nack_with_its_message(self) -> None:
        self.assertEqual(outcome_of(ValueError("no price"), ITEM).settle("a"), {"lease_id": "a", "as": "nack", "error": "ValueError: no price"})

    def test_a_raised_outcome_counts(self) -> None:
        self.assertEqual(outcome_of(Reject("wrong"), ITEM).settle("a")["as"], "reject")

    def test_another_result_is_a_failure(self) -> None:
        self.assertIn("returned 3", outcome_of(3, ITEM).settle("a")["error"])

    def test_a_failure_that_the_handler_has_not_chosen_is_logged(self) -> None:
        changed = replace(item("k-1"), attempt=3, deltas=[Delta("Added", 1, "", {})])
        for result, end in [(ValueError("no price"), "ValueError: no price"), (7, "the handler returned 7: it must"), (Done(), "Done is only for")]:
            with self.assertLogs("deltaq", "WARNING") as logs:
                log_failure(result, changed, "prices")
            self.assertIn(f"the handler failed: key {changed.key!r}, queue prices, attempt 3: {end}", logs.output[0])
            self.assertEqual(logs.records[0].exc_info is not None, isinstance(result, ValueError))
        chosen = [None, Ack(), Nack("later"), Reject("never"), Release(), SystemExit(), KeyboardInterrupt()]
        with self.assertNoLogs("deltaq"):
            for each in chosen:
                log_failure(each, changed, "prices")

    def test_a_key_that_is_parked_is_logged(self) -> None:
        leases = Leases("prices")
        [held] = leases.take([item("k-1")], 0.0)
        leases.start(held)
        leases.finish(held, Nack("no price"), 0.0)
        settled = [Settled("k-1", "nack", "ok", failures=5, parked=True)]
        with self.assertLogs("deltaq", "WARNING") as logs:
            leases.settled(leases.take_settles(), settled)
        self.assertEqual(logs.output, [f"WARNING:deltaq:key {held.item.key!r} of queue prices is parked after 5 failures: no price"])

    def test_done_outside_mode_keys_is_a_failure(self) -> None:
        elsewhere = replace(ITEM, deltas=[Delta("Added", 1, "", None)])
        self.assertEqual(outcome_of(Done(), ITEM).settle("a")["as"], "done")
        failure = outcome_of(Done(delay="1h"), elsewhere).settle("a")
        self.assertEqual((failure["as"], failure["error"]), ("nack", DONE_ELSEWHERE))

    def test_an_error_without_a_usable_text_is_a_failure_all_the_same(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise KeyError("text")

        self.assertEqual(outcome_of(OSError("file \udcff"), ITEM).settle("a")["error"], "OSError: file ?")
        self.assertEqual(outcome_of(Mute(), ITEM).settle("a")["error"], "Mute: KeyError while the text of the error was made")
        self.assertEqual(outcome_of(Reject(ValueError("no price")), ITEM).settle("a")["error"], "no price")
        self.assertEqual(outcome_of(SystemExit("bye"), ITEM).settle("a")["error"], "SystemExit: bye")

    def test_a_delay_that_the_server_would_refuse_fails_in_the_handler(self) -> None:
        for wrong in (-1, float("nan"), "soon", "367d"):
            with self.assertRaises(ValueError):
                Nack(delay=wrong)
        self.assertEqual(Nack(delay="5m").settle("a")["delay"], "5m")

    def test_long_errors_are_cut(self) -> None:
        self.assertEqual(outcome_of(Nack("x" * 5000 + "end"), ITEM).settle("a")["error"][-4:], "xend")
        self.assertEqual(len(outcome_of(Nack("x" * 5000), ITEM).settle("a")["error"]), ERROR_BYTES_MAX)
        emoji = outcome_of(Nack("\N{GRINNING FACE}" * 5000 + "end"), ITEM).settle("a")["error"]
        self.assertEqual(emoji, "\N{GRINNING FACE}" * 1023 + "end")


if __name__ == "__main__":
    unittest.main()
