"""Tests of the calls against a server, and of what their methods show."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import sys
import unittest
import unittest.mock
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from deltaq import Context, Item, ListedItem, Page, Problem, Produced, Queue, Settings, Worker, aio
from deltaq.deltaqtest import Server, find


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

    def test_a_source_that_has_no_change_is_seen(self) -> None:
        self.queue.put_settings()
        self.queue.seen_source("erp/eu")
        self.assertEqual(self.queue.set_stale_after("erp/eu", "15m")["stale_after"], "15m")
        self.assertIsNone(self.queue.set_stale_after("erp/eu", None)["stale_after"])
        self.assertIsNotNone(self.queue.sources().items[0]["last_contact_at"])

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
        plan = self.queue.plan_settings({"lease": "2m"})
        self.assertEqual((plan.current, plan.etag, plan.planned["lease"]), (created.values, created.etag, "2m"))
        with self.assertRaisesRegex(Problem, "the queue does not push"):
            self.queue.test_push()
        fresh = self.client.queue("fresh").plan_settings()
        self.assertEqual((fresh.current, fresh.etag, fresh.planned["lease"]), (None, None, "30s"))
        self.queue.add({"key": "a", "price": 1}, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        item = self.queue.pop(with_known=True).items[0]
        self.assertEqual(item.deltas[0].traceparent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        self.queue.reject(item.lease.id, error="no route")
        listed = self.queue.item("a")
        self.assertEqual((listed.state, listed.deltas[0].object, listed.last_error), ("parked", {"key": "a", "price": 1}, "no route"))
        self.assertEqual((self.queue.status().parked, self.queue.get().status.parked), (1, 1))
        self.queue.delete_key("a")
        self.assertTrue(self.queue.close(at_once=True).status.closed)

    def test_followers_are_detached_only_by_force(self) -> None:
        copy = self.client.queue("copy")
        changes: list[Callable[..., Settings]] = [self.queue.patch_settings, self.queue.put_settings]
        for change in changes:
            self.queue.put_settings()
            copy.put_settings({"follow": {"queue": "q", "view": "known"}})
            with self.assertRaises(Problem) as refused:
                change({"known_objects": False})
            self.assertEqual(refused.exception.code, "followed")
            change({"known_objects": False}, force=True)
            self.assertIsNone(copy.settings().values["follow"])

    def test_a_call_that_must_not_create_its_queue(self) -> None:
        queue, one = self.queue, {"key": "a"}
        calls: list[Callable[[], object]] = [
            lambda: queue.add(one, must_exist=True),
            lambda: queue.update(one, must_exist=True),
            lambda: queue.delete(one, must_exist=True),
            lambda: queue.delete_key("a", must_exist=True),
            lambda: queue.deltas([{"type": "Added", "object": one}], must_exist=True),
            lambda: queue.deltas([{"type": "Added", "object": one}], must_exist=True, skip_invalid=True),
            lambda: queue.replace([one], must_exist=True),
            lambda: queue.add_key("a", must_exist=True),
        ]
        for call in calls:
            with self.assertRaises(Problem) as refused:
                call()
            self.assertEqual(refused.exception.code, "queue-not-found")
        queue.put_settings()
        for call in calls[:-1]:
            call()

    def test_a_change_may_name_the_object_that_it_expects(self) -> None:
        queue = self.queue
        queue.add({"key": "a", "n": 1}, if_absent=True)
        first = queue.latest_object("a").etag
        queue.update({"key": "a", "n": 2}, if_match=first)
        changes: list[Callable[[], Produced]] = [
            lambda: queue.add({"key": "a"}, if_absent=True),
            lambda: queue.update({"key": "a"}, if_absent=True),
            lambda: queue.add({"key": "a"}, if_match=first),
            lambda: queue.update({"key": "a"}, if_match=first),
            lambda: queue.delete({"key": "a"}, if_match=first),
            lambda: queue.delete_key("a", if_match=first),
        ]
        for change in changes:
            with self.assertRaises(Problem) as refused:
                change()
            self.assertEqual(refused.exception.code, "precondition-failed")
        self.assertEqual(queue.latest_object("a").object["n"], 2)
        queue.delete_key("a", if_match=queue.latest_object("a").etag)
        queue.add({"key": "a", "n": 3}, if_absent=True)
        queue.delete({"key": "a"}, if_match=queue.latest_object("a").etag)
        with self.assertRaises(Problem) as gone:
            queue.latest_object("a")
        self.assertEqual(gone.exception.code, "key-not-found")

    def test_items_are_selected_by_their_prefix_source_and_last_error(self) -> None:
        self.queue.put_settings({"max_failures": 1})
        self.queue.add([{"key": "a1"}, {"key": "b1"}], source="erp")
        self.queue.add({"key": "a2"})
        [popped] = self.queue.pop().items
        self.queue.nack(popped.lease.id, error="no price")

        def keys(**options: Any) -> list[str]:
            return sorted(item.key for item in self.queue.items(**options))

        self.assertEqual(keys(prefix="a"), ["a1", "a2"])
        self.assertEqual(keys(source="erp"), ["a1", "b1"])
        self.assertEqual(keys(error="no price"), [popped.key])
        self.assertEqual(keys(error="", source="erp"), ["b1"])

    def test_a_key_alone(self) -> None:
        self.queue.put_settings({"mode": "keys"})
        self.queue.add_key("a")
        self.assertEqual(self.queue.pop().items[0].key, "a")
        reply = self.queue.add_key("b", rate_limited=True)
        self.assertEqual((reply.keys or [])[0]["failures"], 1)

    def test_an_extension_waits_for_a_newer_change_and_a_hold_has_a_scope(self) -> None:
        queue = self.queue
        queue.add([{"key": "a"}, {"key": "b"}])
        lease = queue.pop().items[0].lease.id
        self.assertEqual(queue.extend(lease, until_changed=0.05)[0].pending_deltas, 0)
        queue.update({"key": "a", "n": 2})
        self.assertEqual(queue.extend(lease, lease_duration="1h", until_changed="30s")[0].pending_deltas, 1)
        released = queue.release(lease, hold="1h", hold_scope="key")
        self.assertIsNotNone(released[0].held_until)
        self.assertEqual([item.key for item in queue.pop(max=9).items], ["b"])

    def test_a_server_says_why_it_does_not_start(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "did not start:\n.*max_wait"):
            Server(settings={"server.max_wait": "soon"})

    def test_the_program_is_looked_for_in_this_order(self) -> None:
        package = unittest.mock.Mock()
        package.find_deltaq.return_value = "/env/bin/deltaq"
        with unittest.mock.patch.dict(sys.modules, deltaq_server=package), unittest.mock.patch("shutil.which", return_value="/usr/bin/deltaq"):
            with unittest.mock.patch.dict(os.environ, DELTAQ_BIN="/mine"):
                self.assertEqual(find(), "/mine")
            with unittest.mock.patch.dict(os.environ):
                os.environ.pop("DELTAQ_BIN", None)
                self.assertEqual(find(), "/env/bin/deltaq")
                package.find_deltaq.side_effect = FileNotFoundError
                self.assertEqual(find(), "/usr/bin/deltaq")
                with unittest.mock.patch.dict(sys.modules, deltaq_server=None), unittest.mock.patch("shutil.which", return_value=None):
                    self.assertRaisesRegex(FileNotFoundError, "pip install deltaq-server, set DELTAQ_BIN", find)

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
            queue = (aio.Queue if worker is aio.Worker else Queue)(unittest.mock.Mock(), "q")
            with self.assertRaisesRegex(TypeError, "the handler"):
                worker(queue, handler)

    def test_a_handler_with_a_wrong_signature_is_refused(self) -> None:
        async def work(item: Item, context: Context) -> None: ...

        self.check(None)
        self.check(lambda item: None)
        self.check(lambda item, context, more: None)
        self.check(lambda *, item, context: None)
        self.check(work, Worker)

    def test_a_generator_is_no_handler(self) -> None:
        def work(item: Item, context: Context) -> Iterator[None]:
            yield

        async def work_async(item: Item, context: Context) -> AsyncIterator[None]:
            yield

        class Work:
            def __call__(self, item: Item, context: Context) -> Iterator[None]:
                yield

        for handler in (work, work_async, Work(), functools.partial(work)):
            self.check(handler)

    def test_other_handlers_are_accepted(self) -> None:
        class Work:
            def __call__(self, item: Item, context: Context) -> None: ...

            def handle(self, item: Item, context: Context, more: int = 1) -> None: ...

        for handler in (Work(), Work().handle, lambda *_: None, unittest.mock.Mock(), max):
            Worker(Queue(unittest.mock.Mock(), "q"), handler)  # type: ignore[arg-type]
            aio.Worker(aio.Queue(unittest.mock.Mock(), "q"), handler)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
