"""Tests of the calls against a server, and of what their methods show."""

from __future__ import annotations

import asyncio
import inspect
import unittest
import unittest.mock
from typing import Any

from deltaq import Context, Item, ListedItem, Page, Problem, Produced, Queue, Worker, aio
from deltaq.deltaqtest import Server


class Calls(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.client = self.server.client()
        self.addCleanup(self.client.close)
        self.queue = self.client.queue("q")

    def test_an_iteration_goes_over_all_pages(self) -> None:
        self.queue.add([{"key": f"k{number}"} for number in range(5)])
        page = self.queue.latest(limit=2)
        self.assertEqual(len(page.items), 2)
        self.assertEqual([entry.key for entry in page], [f"k{number}" for number in range(5)])
        self.assertEqual([entry.key for entry in self.queue.items(limit=2)], [f"k{number}" for number in range(5)])
        for name in ("a", "b"):
            self.client.queue(name).put_settings()
        self.assertEqual([queue.name for queue in self.client.queues(limit=1)], ["a", "b", "q"])

    def test_the_same_for_asyncio(self) -> None:
        async def run() -> tuple[list[str], list[str]]:
            async with aio.Client(self.server.url) as client:
                page = await client.queue("q").latest(limit=2)
                with self.assertRaisesRegex(TypeError, "async for"):
                    next(iter(page))
                return [entry.key async for entry in page], [queue.name async for queue in await client.queues(limit=1)]

        self.queue.add([{"key": f"k{number}"} for number in range(5)])
        self.assertEqual(asyncio.run(run()), ([f"k{number}" for number in range(5)], ["q"]))

    def test_items_status_and_settings_are_typed(self) -> None:
        created = self.queue.put_settings({"lease": "1m", "max_failures": 3}, if_absent=True)
        self.assertEqual((created.values["lease"], created.values["max_failures"]), ("1m", 3))
        with self.assertRaises(Problem):
            self.queue.put_settings(if_absent=True)
        self.queue.add({"key": "a", "price": 1}, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        item = self.queue.pop(with_known=True).items[0]
        self.assertEqual(item.deltas[0].traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        self.queue.reject(item.lease.id, error="no route")
        listed = self.queue.item("a")
        self.assertEqual((listed.state, listed.deltas[0].object, listed.last_error), ("parked", {"key": "a", "price": 1}, "no route"))
        self.assertEqual((self.queue.status().parked, self.queue.get().status.parked), (1, 1))
        self.queue.delete_key("a")
        self.assertTrue(self.queue.close(at_once=True).status.closed)

    def test_a_key_alone(self) -> None:
        self.queue.put_settings({"mode": "keys"})
        self.queue.add_key("a")
        self.assertEqual(self.queue.pop().items[0].key, "a")
        reply = self.queue.add_key("b", rate_limited=True)
        self.assertEqual((reply.keys or [])[0]["failures"], 1)

    def test_a_server_says_why_it_does_not_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "did not start:\n.*max_wait"):
            Server(settings={"server.max_wait": "soon"})

    def test_settings_reach_a_server(self) -> None:
        with Server(settings={"server.max_wait": "7s"}) as server, server.client() as client, self.assertRaises(Problem) as refused:
            client.queue("q").pop(wait="8s")
        self.assertEqual(refused.exception.code, "invalid-parameter")


class Shown(unittest.TestCase):
    def test_methods_show_their_parameters_and_what_they_return(self) -> None:
        for owner in (Queue, aio.Queue):
            add = inspect.signature(owner.add)
            self.assertEqual(list(add.parameters)[:3], ["self", "objects", "key"])
            self.assertIs(add.return_annotation, Produced)
            self.assertEqual(inspect.signature(owner.items).return_annotation, Page[ListedItem])
            self.assertIsNone(inspect.signature(owner.delete_queue).return_annotation)
            self.assertEqual((owner.add.__qualname__, owner.delete_queue.__name__), ("Queue.add", "delete_queue"))
            self.assertTrue(all(inspect.getdoc(method) for _, method in inspect.getmembers(owner, inspect.isfunction)))
            self.assertEqual(inspect.iscoroutinefunction(owner.add), owner is aio.Queue)


class Handlers(unittest.TestCase):
    def check(self, handler: Any, *workers: Any) -> None:
        for worker in workers or (Worker, aio.Worker):
            with self.assertRaisesRegex(TypeError, "handler"):
                worker(unittest.mock.Mock(), handler)

    def test_a_handler_with_a_wrong_signature_is_refused(self) -> None:
        async def work(item: Item, context: Context) -> None: ...

        self.check(None)
        self.check(lambda item: None)
        self.check(lambda item, context, more: None)
        self.check(lambda *, item, context: None)
        self.check(work, Worker)

    def test_other_handlers_are_accepted(self) -> None:
        class Work:
            def __call__(self, item: Item, context: Context) -> None: ...

            def handle(self, item: Item, context: Context, more: int = 1) -> None: ...

        for handler in (Work(), Work().handle, lambda *_: None, unittest.mock.Mock(), max):
            for worker in (Worker, aio.Worker):
                worker(unittest.mock.Mock(), handler)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
