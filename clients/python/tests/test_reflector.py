"""Tests of reflectors whose sources have entries that can't be sent."""

from __future__ import annotations

import asyncio
import unittest
import unittest.mock
from collections.abc import AsyncIterator
from typing import Any

from deltaq import Change, NotJson, Problem, Queue, QueueDeleted, Reflector, Replace, RetryPolicy, aio, calls
from deltaq.models import Produced
from deltaq.reflecting import CHECK_SECONDS, Entry, Refusal, ReplaceOptions, Sequence, is_about_the_entry

ENTRIES: list[Replace] = [Replace([{"key": "a", "price": number}]) for number in (1, float("nan"), "\ud800", 2)]


class Service:
    """Takes the place of a client."""

    retry = RetryPolicy()

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []
        self.incarnation = "q1"

    def send(self, call: calls.Call[Any], **_: object) -> Any:
        if call.method == "GET":
            return call.read({"items": [], "incarnation": self.incarnation})
        self.bodies.append(call.body)
        return Produced(1)


class AsyncService(Service):
    async def send(self, call: calls.Call[Any], **_: object) -> Any:
        return super().send(call)


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

    def test_the_queue_is_asked_for_at_a_modest_rate(self) -> None:
        sequence = Sequence("prices", "erp", ReplaceOptions())
        # The queue does not exist before the first list.
        for now, incarnation in [(100.0, None), (100.1, "q1")]:
            self.assertIsNotNone(sequence.check(now))
            sequence.checked(incarnation, self.LIST)
        self.assertIsNone(sequence.check(100.0 + CHECK_SECONDS))
        self.assertIsNotNone(sequence.check(100.2 + CHECK_SECONDS))
        with self.assertRaises(QueueDeleted):
            sequence.checked(None, self.CHANGE)


if __name__ == "__main__":
    unittest.main()
