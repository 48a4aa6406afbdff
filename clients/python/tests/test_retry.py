"""Tests of retries and of how replies are read."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import unittest
import uuid
from decimal import Decimal
from typing import Any

from deltaq import BadReply, ConnectionLost, Error, NotJson, Problem, RetryOptions, calls
from deltaq.durations import duration_seconds, duration_text
from deltaq.json import Codec, dump
from deltaq.protocol import Reply, read_reply
from deltaq.retry import ASKED_SECONDS_MAX, Attempts


def problem(status: int, **fields: object) -> Problem:
    call = calls.status("prices")
    try:
        read_reply(Codec(), call, Reply(status, json.dumps(fields).encode()))
    except Problem as found:
        return found
    raise AssertionError("the reply is no problem")


class Retries(unittest.TestCase):
    policy = RetryOptions(attempts=4, first=1.0, max=5.0, random=lambda: 1.0)

    def test_waits_double_up_to_the_maximum(self) -> None:
        attempts = Attempts(self.policy, for_ever=True)
        waits = [attempts.wait_after(ConnectionLost()) for _ in range(5)]
        self.assertEqual(waits, [1.0, 2.0, 4.0, 5.0, 5.0])

    def test_waits_stay_finite_after_many_failures(self) -> None:
        self.assertEqual(self.policy.backoff(10_000), 5.0)

    def test_the_jitter_is_full(self) -> None:
        policy = RetryOptions(first=1.0, random=lambda: 0.25)
        self.assertEqual(policy.backoff(2), 0.5)

    def test_the_number_of_attempts_is_bounded(self) -> None:
        attempts = Attempts(self.policy)
        waits = [attempts.wait_after(ConnectionLost()) for _ in range(4)]
        self.assertEqual([wait is None for wait in waits], [False, False, False, True])

    def test_what_is_not_retryable_is_not_repeated(self) -> None:
        refused = problem(422, code="no-key", retryable=False)
        self.assertIsNone(Attempts(self.policy, for_ever=True).wait_after(refused))

    def test_only_loops_that_run_for_ever_go_on_after_a_defect(self) -> None:
        defects: list[Error] = [problem(500, code="internal", retryable=False), problem(501), BadReply("<html>")]
        for defect in defects:
            self.assertIsNone(Attempts(self.policy).wait_after(defect), defect)
            self.assertEqual(Attempts(self.policy, for_ever=True).wait_after(defect), 1.0, defect)

    def test_a_reply_of_json_that_cant_be_read_is_not_asked_for_for_ever(self) -> None:
        attempts, page, unreadable = Attempts(self.policy, for_ever=True), BadReply("<html>"), BadReply("{}", is_json=True)
        waits = [attempts.wait_after(error) for error in [unreadable, unreadable, page, page, page, page, *[unreadable] * 4]]
        self.assertEqual([wait is None for wait in waits], [False] * 9 + [True])

    def test_what_was_certainly_not_applied_is_known(self) -> None:
        applied: list[Error] = [ConnectionLost(), BadReply(), problem(502), problem(504, code="timeout"), problem(503, code="journal-unavailable")]
        not_applied: list[Error] = [ConnectionLost(was_sent=False), problem(429), problem(503, code="draining"), problem(422, code="no-key")]
        self.assertEqual([error.is_outcome_unknown for error in applied + not_applied], [True] * len(applied) + [False] * len(not_applied))

    def test_a_wait_is_not_shorter_than_the_server_asks_for(self) -> None:
        policy = RetryOptions(random=lambda: 0.0)
        refused = problem(429, code="too-many-requests", retryable=True, retry_after_ms=2500)
        self.assertEqual(Attempts(policy).wait_after(refused), 2.5)

    def test_a_wait_that_no_thread_can_wait_for_is_cut(self) -> None:
        policy = RetryOptions(total=math.inf, random=lambda: 0.0)
        for milliseconds, wait in [(99_999_999_999_000, ASKED_SECONDS_MAX), (10**400, ASKED_SECONDS_MAX), (-5, 0.0)]:
            refused = problem(429, code="too-many-requests", retryable=True, retry_after_ms=milliseconds)
            self.assertEqual(Attempts(policy).wait_after(refused), wait)

    def test_the_field_of_the_problem_says_whether_it_is_retryable(self) -> None:
        self.assertTrue(problem(410, code="queue-deleted", retryable=True).is_retryable)
        self.assertFalse(problem(507, code="disk-full", retryable=False).is_retryable)

    def test_without_a_problem_document_the_status_decides(self) -> None:
        for status, is_retryable in [(502, True), (429, True), (408, True), (500, False), (404, False), (301, False)]:
            self.assertEqual(problem(status).is_retryable, is_retryable, status)

    def test_a_policy_without_attempts_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            RetryOptions(attempts=0)


class Replies(unittest.TestCase):
    def test_the_header_counts_if_the_problem_has_no_wait(self) -> None:
        with self.assertRaises(Problem) as raised:
            read_reply(Codec(), calls.info(), Reply(503, b"<html>", retry_after="3"))
        self.assertEqual((raised.exception.retry_after, raised.exception.code), (3.0, None))

    def test_leases_that_are_all_lost_are_a_result(self) -> None:
        body = {
            "code": "lease-lost",
            "settled": [{"lease_id": "7a1e0b52-246012345678337", "as": "ack", "result": "stale", "outcome": "expired", "parked": None}],
        }
        [settled] = read_reply(Codec(), calls.ack("q", "7a1e0b52-246012345678337"), Reply(409, json.dumps(body).encode()))
        self.assertEqual((settled.result, settled.outcome), ("stale", "expired"))

    def test_other_problems_of_such_calls_are_errors(self) -> None:
        with self.assertRaises(Problem):
            read_reply(Codec(), calls.ack("q", ["a-1"]), Reply(409, b'{"code":"wrong-mode"}'))

    def test_a_reply_of_another_service_is_an_error(self) -> None:
        for body in (b"<html>", b"\xff", b"", b"[]", b'{"items":3}', b"{}", b"[" * 100_000):
            with self.assertRaises(BadReply) as raised:
                read_reply(Codec(), calls.pop("q"), Reply(200, body))
            self.assertEqual(raised.exception.is_json, body[:1] in (b"[", b"{"), body[:10])

    def test_settings_have_their_etag(self) -> None:
        for call, body in [(calls.settings("q"), {"lease": "1m"}), (calls.patch_settings("q", {}), {"name": "q", "settings": {"lease": "1m"}})]:
            settings = read_reply(Codec(), call, Reply(200, json.dumps(body).encode(), etag='"1"'))
            self.assertEqual((settings.values, settings.etag), ({"lease": "1m"}, '"1"'))

    def test_a_lease_that_was_extended_has_its_own_members(self) -> None:
        row = {"lease_id": "a", "as": "extend", "result": "ok", "outcome": None, "expires_at": "", "expires_in_ms": 60000, "pending_deltas": 1, "deleted": True}
        [extended] = read_reply(Codec(), calls.extend("q", "a"), Reply(200, json.dumps({"settled": [row], "stale": 0}).encode()))
        self.assertEqual((extended.how, extended.expires_in_ms, extended.pending_deltas, extended.deleted), ("extend", 60000, 1, True))

    def test_what_to_do_is_in_the_message(self) -> None:
        refused = problem(400, code="invalid-parameter", detail='parameter "wayt": unknown parameter of this call', hint='did you mean "wait"?')
        self.assertEqual(refused.hint, 'did you mean "wait"?')
        self.assertEqual(str(refused), '400 invalid-parameter: parameter "wayt": unknown parameter of this call; did you mean "wait"?')
        self.assertIsNone(problem(422, code="no-key").hint)

    def test_a_problem_says_what_to_do_in_python(self) -> None:
        twice = problem(422, code="duplicate-key", detail="twice", hint="send each key once, or add duplicates=last")
        self.assertEqual(str(twice), "422 duplicate-key: twice; send each key once, or add keep_last=True")
        self.assertEqual(str(problem(401, code="unauthorized", detail="no")), "401 unauthorized: no; a token is sent by Client(token=...)")
        self.assertEqual(problem(401, code="unauthorized", hint="all nodes need the same tokens").hint, "all nodes need the same tokens")

    def test_a_reply_of_another_service_has_no_code(self) -> None:
        self.assertRegex(str(problem(400)), r"^400: the reply is not from deltaq")

    def test_fields_that_a_newer_server_adds_are_ignored(self) -> None:
        popped = read_reply(Codec(), calls.pop("q"), Reply(200, b'{"items":[],"settled":[],"mood":"good"}'))
        self.assertEqual(popped.items, [])

    def test_a_key_may_have_its_difference(self) -> None:
        self.assertTrue(calls.item("q", "a").target.endswith("/item?key=a"))
        self.assertTrue(calls.item("q", "a", with_diff=True).target.endswith("/item?key=a&with=diff"))

    def test_an_item_has_its_difference(self) -> None:
        lease = {"id": "7a1e0b52-7", "token": 7, "duration_ms": 30000, "expires_at": "2026-11-28T00:00:00Z", "expires_in_ms": 30000}
        item = {"key": "a", "lease": lease, "attempt": 1, "failures": 0, "is_in_initial_list": False, "deltas": []}
        operation = {"op": "replace", "path": "/price", "value": 12, "old": None}
        cases: list[tuple[dict[str, Any], tuple[Any, Any]]] = [
            ({"diff": [operation]}, ([operation], None)),
            ({"diff": []}, ([], None)),
            ({"diff": None, "diff_omitted": "too_large"}, (None, "too_large")),
            ({"diff": None}, (None, None)),
            ({}, (None, None)),
        ]
        for more, expected in cases:
            body = json.dumps({"items": [{**item, **more}], "settled": []}).encode()
            [read] = read_reply(Codec(), calls.pop("q"), Reply(200, body)).items
            self.assertEqual((read.diff, read.diff_omitted), expected)


class Numbers(unittest.TestCase):
    def test_numbers_stay_exact(self) -> None:
        text = b'{"a":18446744073709551615,"b":0.10000000000000000001,"c":[1.50,-2E+3]}'
        value = Codec(Decimal).load(text)
        self.assertEqual(dump(value), text)

    def test_whole_numbers_with_more_digits_than_an_int_stay_exact(self) -> None:
        text = b'{"a":%s,"b":-%s,"c":7,"d":1.5}' % (b"98765" * 1000, b"12345" * 1000)
        value = Codec().load(text)
        self.assertEqual(dump(value), text)
        self.assertEqual([type(value[name]) for name in "acd"], [Decimal, int, float])

    def test_a_number_that_the_program_cant_read_is_a_bad_reply(self) -> None:
        with self.assertRaises(BadReply) as raised:
            Codec(Decimal).load(b"[1e99999999999999999999]")
        self.assertTrue(raised.exception.is_json)

    def test_text_that_looks_like_a_mark_stays_text(self) -> None:
        self.assertEqual(dump({"a": "1.5", "b": Decimal("1.5")}), b'{"a":"1.5","b":1.5}')

    def test_what_is_no_json_is_refused(self) -> None:
        endless: list[object] = []
        endless.append(endless)
        for value in (float("nan"), Decimal("Infinity"), object(), "\ud800", 10**5000, endless):
            with self.assertRaises(NotJson):
                dump({"a": value})

    def test_the_refusal_names_the_object_and_the_member(self) -> None:
        @dataclasses.dataclass
        class Price:
            amount: int

        nan, endless = float("nan"), dict[str, object]()
        endless["a"] = endless
        begin = "object 2 (counted from 0) can't be written as JSON: "
        cases: list[tuple[object, str]] = [
            ({"price": nan}, "nan at /price"),
            ({"a": [{"b/c~": Decimal("Infinity")}]}, "Decimal('Infinity') at /a/0/b~1c~0"),
            ({"at": datetime.date(2026, 1, 2)}, "datetime.date(2026, 1, 2) at /at; .isoformat() makes a text of it"),
            ({"id": uuid.UUID(int=1)}, f"{uuid.UUID(int=1)!r} at /id; str() makes a text of it"),
            ({"tags": {1}}, "{1} at /tags; list() makes a list of it"),
            ({"name": b"x"}, "b'x' at /name; .decode() makes a text of it"),
            ({"price": Price(3)}, f"{Price(3)!r} at /price; dataclasses.asdict() makes a dict of it"),
            ({"a": {(1, 2): 3}}, "the name (1, 2) of a member, which is no text at /a"),
            (endless, "the nesting is too deep, or an object contains itself"),
            ({"a": object}, "<class 'object'> at /a"),
            ({3}, "{3}; list() makes a list of it"),
        ]
        for wrong, text in cases:
            objects: list[Any] = [{"key": "a"}, {"key": "b"}, wrong]
            for call in (calls.add, calls.replace):
                with self.assertRaises(NotJson) as refused:
                    call("q", objects)
                self.assertEqual(str(refused.exception), begin + text)
        with self.assertRaises(NotJson) as refused:
            calls.add("q", {"price": nan})
        self.assertEqual(str(refused.exception), "the object can't be written as JSON: nan at /price")
        with self.assertRaisesRegex(NotJson, r"x{50}\.\.\. at /a$"):
            dump({"a": type("x" * 200, (), {})})

    def test_durations(self) -> None:
        self.assertEqual(duration_text(1.5), "1500000us")
        self.assertEqual(duration_seconds("1m30s"), 90.0)
        self.assertEqual(duration_seconds("1.5s"), 1.5)
        for wrong in ("", "5", "5 s", "s", "1m-3s"):
            with self.assertRaises(ValueError):
                duration_seconds(wrong)
        with self.assertRaises(ValueError):
            duration_text(-1)


class Requests(unittest.TestCase):
    def test_names_are_encoded(self) -> None:
        self.assertEqual(calls.item("q", "a/b c").target, "/v1/queues/q/item?key=a%2Fb%20c")

    def test_a_list_says_that_it_is_complete(self) -> None:
        call = calls.replace("q", [{"key": "a"}, {"key": "b"}], source="erp")
        self.assertEqual(call.body, b'{"key":"a"}\n{"key":"b"}\n{"$end":2}\n')
        self.assertEqual(calls.replace("q", []).body, b'{"$end":0}\n')

    def test_calls_that_would_count_again_are_marked(self) -> None:
        selecting = [calls.promote("q", all=True), calls.redrive("q", ["a"]), calls.discard("q", error="no route")]
        marked: list[calls.Call[Any]] = [
            calls.purge("q"),
            calls.delete_queue("q"),
            calls.resync("q"),
            calls.seed("q", []),
            calls.add_key("q", "a", rate_limited=True),
            calls.deltas("q", [{"type": "Deleted", "key": "a", "expected_version": 0}]),
            calls.add("q", {"key": "a"}, if_absent=True),
            calls.update("q", {"key": "a"}, if_match='"1"'),
            calls.delete_key("q", "a", if_match='"1"'),
            calls.deltas("q", [{"type": "Deleted", "key": "a", "expected_version": 7}], skip_invalid=True),
            *selecting,
        ]
        marked += [calls.put_settings("q", if_absent=True), calls.patch_settings("q", {}, if_match='"1"')]
        self.assertEqual([call.counts_twice for call in marked], [True] * len(marked))
        numbered = calls.add_key("q", "a", rate_limited=True, source="erp", sequence=1)
        others: list[calls.Call[Any]] = [calls.add_key("q", "a"), calls.pop("q"), calls.settle("q", []), calls.replace("q", []), numbered]
        others += [calls.put_settings("q"), calls.patch_settings("q", {})]
        self.assertEqual([call.counts_twice for call in others], [False] * len(others))

    def test_leases_are_named_one_by_one_or_as_a_list(self) -> None:
        self.assertEqual(calls.ack("q", "7a1e0b52-246012345678337").body, b'{"lease_id":"7a1e0b52-246012345678337"}')
        self.assertEqual(calls.extend("q", ["a", "b"], lease_duration="1m").body, b'{"lease_ids":["a","b"],"lease_duration":"1m"}')

    def test_keys_are_selected_in_one_way(self) -> None:
        self.assertEqual(calls.redrive("q", all=True, expected_count=3).body, b'{"all":true,"expected_count":3}')
        self.assertEqual(calls.discard("q", error="").body, b'{"error":""}')
        self.assertEqual(calls.promote("q", []).body, b'{"keys":[]}')
        wrong: list[dict[str, Any]] = [{}, {"all": False}, {"keys": ["a"], "error": "no route"}, {"keys": ["a"], "all": True}, {"keys": "a"}]
        for selection in wrong:
            with self.assertRaises(ValueError, msg=str(selection)):
                calls.redrive("q", **selection)

    def test_conditions_are_headers(self) -> None:
        self.assertEqual(calls.put_settings("q", if_match='"1"', if_absent=True).headers, {"if-match": '"1"', "if-none-match": "*"})
        patch = calls.patch_settings("q", {"lease": None})
        self.assertEqual((patch.method, patch.body, patch.headers), ("PATCH", b'{"lease":null}', {}))

    def test_each_pop_has_an_id_of_its_own(self) -> None:
        self.assertNotEqual(calls.pop("q").target, calls.pop("q").target)
        self.assertIn("id=mine", calls.pop("q", id="mine").target)
        for known, diff, text in [(True, False, "with=known&"), (False, True, "with=diff&"), (True, True, "with=known%2Cdiff&")]:
            self.assertIn(text, calls.pop("q", id="mine", with_known=known, with_diff=diff).target + "&")


if __name__ == "__main__":
    unittest.main()
