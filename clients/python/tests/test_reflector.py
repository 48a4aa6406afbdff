"""Tests of reflectors whose sources have entries that can't be sent."""

from __future__ import annotations

import asyncio
import unittest
import unittest.mock
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any, ClassVar

from deltaq import Cancelled, Change, NotJson, Problem, Queue, QueueDeleted, QueueRestored, Reflector, Replace, RetryOptions, aio, calls
from deltaq.models import Page, Produced
from deltaq.reflecting import CHECK_SECONDS, Entry, Refusal, is_about_the_entry
from deltaq.retry import Attempts

ENTRIES: list[Replace] = [Replace([{"key": "a", "price": number}]) for number in (1, float("nan"), "\ud800", 2)]


class Service:
    """Takes the place of a client."""

    retry = RetryOptions()

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []
        self.incarnation, self.life, self.version = "q1", "l1", 10
        #: The last number of the source.
        self.sequence = 0
        #: The problem of a call that asks for a version.
        self.refusal: Problem | None = None
        self.asked: list[str] = []

    def send(self, call: calls.Call[Any], **_: object) -> Any:
        if "/synced" in call.target:
            self.asked.append(call.target)
            if self.refusal is not None:
                raise self.refusal
            return None
        if call.method == "GET":
            sources = [{"source": "erp", "sequence": self.sequence}]
            fields = {"incarnation": self.incarnation, "life": self.life, "status": {"resource_version": self.version}}
            return call.read({"items": sources, "continue": None, "resource_version": 1} if "/sources" in call.target else fields)
        self.bodies.append(call.body)
        self.sequence += 1
        self.version += 1
        return Produced(self.version, sequence=self.sequence, incarnation=self.incarnation, life=self.life)


class Forgetful(Service):
    """Applies the first change, but its reply does not arrive. The first attempt to send the second one does not arrive, either."""

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[bytes | None] = []

    def send(self, call: calls.Call[Any], **options: object) -> Any:
        if call.method == "GET":
            return super().send(call, **options)
        number = int(call.target.split("sequence=")[1].split("&")[0])
        is_duplicate = number <= self.sequence
        if not is_duplicate:
            self.sequence = number
            self.applied.append(call.body)
        if len(self.applied) == 1 and not is_duplicate:
            raise Cancelled
        attempts = options["attempts"]
        assert isinstance(attempts, Attempts)
        attempts.failures = 1
        return Produced(self.version, duplicate=is_duplicate, incarnation=self.incarnation, life=self.life)


class AsyncService(Service):
    async def send(self, call: calls.Call[Any], **_: object) -> Any:
        return super().send(call)


class Small(Service):
    """Takes so many changes in one call, and leaves one of them out."""

    def __init__(self, code: str, status: int = 413, most: int = 1_000) -> None:
        super().__init__()
        self.code, self.status, self.most = code, status, most
        self.refused: list[int] = []

    def send(self, call: calls.Call[Any], **options: object) -> Any:
        changes = len((call.body or b"").splitlines())
        if call.method == "POST" and changes > self.most:
            self.refused.append(changes)
            raise Problem(self.status, {"code": self.code, "retryable": False})
        reply = super().send(call, **options)
        if call.method == "POST":
            row = {"index": 0, "key": None, "code": "no-key", "detail": "no key"}
            return replace(reply, queued=changes, invalid=1, invalid_objects=[row])
        return reply


class Reflectors(unittest.TestCase):
    def setUp(self) -> None:
        self.refusals: list[Refusal] = []

    def refused(self, _: Entry, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    def check(self, service: Service) -> None:
        self.assertEqual([type(refusal) for refusal in self.refusals], [NotJson, NotJson])
        self.assertEqual(service.bodies, [b'{"key":"a","price":%d}\n{"$end":1}\n' % number for number in (1, 2)])

    def test_an_entry_that_is_not_json_is_refused_and_the_next_one_is_sent(self) -> None:
        service: Any = Service()
        reflector = Reflector(Queue(service, "prices"), "erp")
        reflector.run(ENTRIES, on_refused=self.refused)
        self.check(service)

    def test_the_same_for_asyncio(self) -> None:
        async def entries() -> AsyncIterator[Replace]:
            for entry in ENTRIES:
                yield entry

        service: Any = AsyncService()
        asyncio.run(aio.Reflector(aio.Queue(service, "prices"), "erp").run(entries(), on_refused=self.refused))
        self.check(service)

    def test_an_object_that_is_nested_too_deeply_is_about_the_entry(self) -> None:
        for status, code, expected in [(400, "invalid-json", True), (400, "invalid-parameter", False), (422, "no-key", True), (401, "unauthorized", False)]:
            self.assertEqual(is_about_the_entry(Problem(status, {"code": code, "retryable": False})), expected, code)


class UnknownOutcomes(unittest.TestCase):
    def test_a_change_after_one_without_a_reply_is_not_taken_for_it(self) -> None:
        service: Any = Forgetful()
        reflector = Reflector(Queue(service, "prices"), "erp")
        with self.assertRaises(Cancelled):
            reflector.apply(Change.deleted("a"))
        reflector.apply(Change.deleted("b"))
        self.assertEqual([b'"b"' in (body or b"") for body in service.applied], [False, True])


class ManyChanges(unittest.TestCase):
    CHANGES: ClassVar[list[Change]] = [Change.updated({"key": f"k{number}"}) for number in range(25_001)]

    def sizes(self, service: Service) -> list[int]:
        return [len((body or b"").splitlines()) for body in service.bodies]

    def test_more_changes_than_a_call_takes_are_sent_in_several_calls(self) -> None:
        service: Any = Service()
        reply = Reflector(Queue(service, "prices"), "erp").apply(self.CHANGES)
        self.assertEqual((self.sizes(service), reply.sequence), ([10_000, 10_000, 5_001], 3))
        self.assertEqual(b"".join(service.bodies).count(b"Updated"), 25_001)

    def test_the_same_for_asyncio(self) -> None:
        service: Any = AsyncService()
        asyncio.run(aio.Reflector(aio.Queue(service, "prices"), "erp").apply(self.CHANGES))
        self.assertEqual(self.sizes(service), [10_000, 10_000, 5_001])

    def test_a_server_may_take_fewer(self) -> None:
        for code in ("batch-too-large", "body-too-large"):
            service: Any = Small(code)
            reply = Reflector(Queue(service, "prices"), "erp").apply(self.CHANGES[:2_500])
            self.assertEqual(self.sizes(service), [625] * 4)
            self.assertEqual((reply.queued, reply.invalid), (2_500, 4))
            self.assertEqual([row["index"] for row in reply.invalid_objects], [0, 625, 1250, 1875])

    def test_a_change_that_is_refused_does_not_stop_the_others(self) -> None:
        service: Any = Small("body-too-large", most=0)
        refusals: list[Refusal] = []
        Reflector(Queue(service, "prices"), "erp").run([self.CHANGES[:2]], on_refused=lambda _, refusal: refusals.append(refusal))
        self.assertEqual((len(refusals), service.refused), (1, [2, 1, 1]))
        service = Small("unauthorized", 401, most=0)
        with self.assertRaises(Problem):
            Reflector(Queue(service, "prices"), "erp").run([self.CHANGES[:2]])
        self.assertEqual(service.refused, [2])


class LeftOutObjects(unittest.TestCase):
    OBJECTS: ClassVar[list[Any]] = [
        {"key": "a", "n": 1},
        {"key": "b", "n": float("nan")},
        {"key": "c", "n": "\ud83d\ude00"},
        {"key": "d", "at": date(2026, 1, 2), "n": Decimal("1.10")},
        {"key": "e", ("a", "b"): 1},
    ]
    LINES: ClassVar[list[bytes]] = [
        b'{"key":"a","n":1}',
        b'{"key":"b","n":NaN}NaN',
        b'{"key":"c","n":"\\ud83d\\ude00"}NaN',
        b'{"key":"d","at":NaN,"n":1.10}NaN',
        b"NaN",
    ]

    def test_objects_that_are_not_json_are_lines_that_the_server_leaves_out(self) -> None:
        call = calls.replace("prices", self.OBJECTS, skip_invalid=True)
        self.assertEqual(call.body, b"\n".join([*self.LINES, b'{"$end":5}\n']))
        deltas = calls.deltas("prices", [Change.updated(entry).delta() for entry in self.OBJECTS], skip_invalid=True)
        self.assertEqual(deltas.content_type, "application/x-ndjson")
        self.assertEqual([line.endswith(b"NaN") for line in (deltas.body or b"").splitlines()], [False, True, True, True, True])
        for lines in (self.OBJECTS, self.OBJECTS[1:2]):
            with self.assertRaises(NotJson):
                calls.replace("prices", lines)
        with self.assertRaises(NotJson):
            calls.replace("prices", self.OBJECTS[1:], skip_invalid=True)

    def test_the_reply_has_the_reason_of_each(self) -> None:
        call = calls.replace("prices", self.OBJECTS, skip_invalid=True)
        counts = dict.fromkeys(["resource_version", "queued", "merged", "ignored", "stale", "replaced", "deleted", "unchanged", "skipped", "taken_over"], 0)
        left_out = [{"index": index, "key": None, "code": "invalid-json", "detail": "trailing characters"} for index in (0, 3)]
        reply = call.read({**counts, "duplicate": False, "invalid": 2, "invalid_objects": left_out})
        details = [row["detail"] for row in reply.invalid_objects]
        self.assertEqual(details[0], "trailing characters")
        self.assertRegex(details[1], "can't be written as JSON: .*date")

    def test_a_deletion_whose_object_is_not_json_is_one_of_its_key(self) -> None:
        call = calls.deltas("prices", [Change("Deleted", {"n": float("nan")}, "a").delta()], skip_invalid=True)
        self.assertEqual(call.body, b'{"type":"Deleted","key":"a"}\n')

    def test_objects_that_are_left_out_are_logged(self) -> None:
        row = {"index": 1, "key": "b", "code": "invalid-object", "detail": "no price"}
        reply = Produced(1, invalid=3, invalid_objects=[row])
        service: Any = unittest.mock.Mock(retry=RetryOptions())

        def send(call: calls.Call[Any], **_: object) -> Any:
            return reply if call.method == "POST" else None if "/sources" not in call.target else Page([], None, 1)

        service.send = send
        with self.assertLogs("deltaq", "WARNING") as logged:
            Reflector(Queue(service, "prices"), "erp").run([Replace([{"key": "a"}])])
        self.assertEqual(
            [record.getMessage() for record in logged.records],
            [
                "source 'erp': queue 'prices' refuses an object, which is left out; its key 'b' keeps what it has: invalid-object: no price",
                "source 'erp': queue 'prices' refuses 2 more objects, which are left out",
            ],
        )

    def test_every_such_object_may_be_refused(self) -> None:
        service: Any = Service()
        reflector = Reflector(Queue(service, "prices"), "erp", skip_invalid=False)
        with self.assertRaises(NotJson):
            reflector.apply(Replace(self.OBJECTS))
        reflector.apply([])
        self.assertEqual(service.bodies, [b"[]"])


class DeletedQueues(unittest.TestCase):
    LIST, CHANGE = Replace([{"key": "a"}]), Change.updated({"key": "b"})

    def test_a_change_does_not_go_to_another_queue_than_the_list_before(self) -> None:
        service: Any = Service()
        reflector = Reflector(Queue(service, "prices"), "erp")
        with unittest.mock.patch("deltaq.reflecting.CHECK_SECONDS", 0.0):
            reflector.run([self.LIST, self.CHANGE])
            service.incarnation = "q2"
            with self.assertRaises(QueueDeleted):
                reflector.run([self.CHANGE])
            self.assertEqual(len(service.bodies), 2)
            reflector.run([self.LIST, self.CHANGE])
            service.incarnation = "q3"
            reflector.run([self.LIST])
        self.assertEqual(len(service.bodies), 5)

    def test_the_same_for_asyncio(self) -> None:
        service: Any = AsyncService()

        async def run() -> None:
            reflector = aio.Reflector(aio.Queue(service, "prices"), "erp")
            await reflector.apply(self.LIST)
            service.incarnation = "q2"
            with self.assertRaises(QueueDeleted):
                await reflector.apply(self.CHANGE)
            await reflector.apply(self.LIST)

        with unittest.mock.patch("deltaq.reflecting.CHECK_SECONDS", 0.0):
            asyncio.run(run())
        self.assertEqual(len(service.bodies), 2)

    def test_a_reply_of_another_queue_is_noticed(self) -> None:
        service: Any = Service()
        reflector = Reflector(Queue(service, "prices"), "erp")
        reflector.run([self.LIST, self.CHANGE])
        service.incarnation = "q2"
        with self.assertRaises(QueueDeleted):
            reflector.apply(self.CHANGE)
        reflector.run([self.LIST, self.CHANGE])

    def test_the_queue_is_asked_for_at_a_modest_rate(self) -> None:
        service: Any = Service()
        reflector = Reflector(Queue(service, "prices"), "erp")
        with unittest.mock.patch("time.monotonic") as now, unittest.mock.patch.object(calls, "place", wraps=calls.place) as place:
            for seconds, asked in [(0.0, 1), (CHECK_SECONDS - 0.1, 1), (CHECK_SECONDS, 2), (CHECK_SECONDS + 0.1, 2)]:
                now.return_value = 100.0 + seconds
                reflector.apply(self.CHANGE)
                self.assertEqual(place.call_count, asked)


class RestoredQueues(unittest.TestCase):
    LIST, CHANGE = Replace([{"key": "a"}]), Change.updated({"key": "b"})

    def setUp(self) -> None:
        patch = unittest.mock.patch("deltaq.reflecting.CHECK_SECONDS", 0.0)
        patch.start()
        self.addCleanup(patch.stop)
        service: Any = Service()
        self.service, self.reflector = service, Reflector(Queue(service, "prices"), "erp")
        self.reflector.run([self.LIST, self.CHANGE])

    def listed_again(self) -> None:
        with self.assertRaises(QueueRestored):
            self.reflector.apply(self.CHANGE)
        sent = len(self.service.bodies)
        self.service.refusal = None
        self.reflector.run([self.LIST, self.CHANGE])
        self.assertEqual(len(self.service.bodies), sent + 2)

    def test_a_restart_that_has_lost_nothing_changes_nothing(self) -> None:
        self.service.life, self.service.version = "l2", 1000
        self.reflector.run([self.CHANGE, self.CHANGE])
        self.assertEqual(self.service.asked, ["/v1/queues/prices/synced?resource_version=12"])

    def test_a_lost_version_leads_to_a_list(self) -> None:
        refusals = [(410, "expired"), (409, "version-ahead"), (403, "forbidden")]
        for life, (status, code) in enumerate(refusals):
            self.service.life, self.service.version = f"restored-{life}", self.service.version + 1000
            self.service.refusal = Problem(status, {"code": code, "retryable": False})
            self.listed_again()

    def test_a_lost_number_leads_to_a_list(self) -> None:
        self.service.life, self.service.sequence = "l2", 1
        self.listed_again()

    def test_versions_that_went_back_lead_to_a_list(self) -> None:
        # A virtual machine that went back together with its memory begins no life.
        self.service.version = 5
        self.listed_again()

    def test_a_reply_in_another_life_is_noticed(self) -> None:
        with unittest.mock.patch("deltaq.reflecting.CHECK_SECONDS", 60.0):
            self.reflector.run([self.LIST, self.CHANGE])
            self.service.life, self.service.refusal = "l2", Problem(410, {"code": "expired", "retryable": False})
            self.listed_again()

    def test_a_list_needs_no_answer(self) -> None:
        self.service.life, self.service.refusal = "l2", Problem(410, {"code": "expired", "retryable": False})
        self.reflector.run([self.LIST, self.CHANGE])
        self.assertEqual(self.service.asked, [])

    def test_asyncio_notices_it_while_the_source_is_quiet(self) -> None:
        service: Any = AsyncService()

        async def source() -> AsyncIterator[Entry]:
            yield self.LIST
            service.life, service.refusal = "l2", Problem(410, {"code": "expired", "retryable": False})
            await asyncio.sleep(3600)

        async def run() -> None:
            with self.assertRaises(QueueRestored):
                await aio.Reflector(aio.Queue(service, "prices"), "erp").run(source())

        asyncio.run(run())
        self.assertEqual(len(service.bodies), 1)


if __name__ == "__main__":
    unittest.main()
