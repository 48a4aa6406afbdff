"""Tests of informers whose index functions fail."""

from __future__ import annotations

import asyncio
import unittest
from collections.abc import AsyncIterator, Iterator
from typing import Any

from deltaq import Informer, Queue, RetryOptions, aio
from deltaq.json import Json
from deltaq.outage import Outage

ROWS: list[Json] = [
    {"type": "Added", "key": "a", "resource_version": 1, "object": {"key": "a"}},
    {"type": "Bookmark", "resource_version": 1, "initial_events_end": True},
]
INDEXES = {"by_city": lambda entry: [entry["city"]]}


class Service:
    """Takes the place of a client."""

    retry = RetryOptions()
    outage = Outage(["http://localhost:1"])

    def rows(self, *_: object) -> Iterator[Json]:
        yield from ROWS


class AsyncService:
    retry = RetryOptions()
    outage = Outage(["http://localhost:1"])

    async def rows(self, *_: object) -> AsyncIterator[Json]:
        for row in ROWS:
            yield row


class Indexes(unittest.TestCase):
    def test_an_exception_of_an_index_function_ends_the_informer(self) -> None:
        service: Any = Service()
        with Informer(Queue(service, "cities"), indexes=INDEXES) as informer:
            with self.assertRaises(KeyError):
                informer.wait_for_sync(timeout=60)
            self.assertIsInstance(informer.error, KeyError)

    def test_the_same_for_asyncio(self) -> None:
        async def run() -> None:
            service: Any = AsyncService()
            async with aio.Informer(aio.Queue(service, "cities"), indexes=INDEXES) as informer:
                with self.assertRaises(KeyError):
                    await asyncio.wait_for(informer.wait_for_sync(), 60)
                self.assertIsInstance(informer.error, KeyError)

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
