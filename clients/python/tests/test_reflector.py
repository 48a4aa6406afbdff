"""Tests of reflectors whose sources have entries that can't be sent."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import AsyncIterator
from typing import Any

from deltaq import NotJson, Queue, Reflector, Replace, RetryPolicy, aio, calls
from deltaq.models import Produced
from deltaq.reflecting import Entry, Refusal

ENTRIES: list[Replace] = [Replace([{"key": "a", "price": number}]) for number in (1, float("nan"), "\ud800", 2)]


class Service:
    """Takes the place of a client."""

    retry = RetryPolicy()

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []

    def send(self, call: calls.Call[Any], **_: object) -> Any:
        if call.method == "GET":
            return call.read({"items": []})
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


if __name__ == "__main__":
    unittest.main()
