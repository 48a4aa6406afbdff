"""Tests of functions around calls and handlers, against a server."""

from __future__ import annotations

import asyncio
import inspect
import unittest
import unittest.mock
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from deltaq import Call, Client, Context, Item, Nack, Outcome, Problem, Queue, Worker, aio
from deltaq.deltaqtest import Server
from deltaq.middleware import wrap

Handle = Callable[[Item, Context], Outcome | None]
AsyncHandle = Callable[[Item, Context], Awaitable[Outcome | None]]
Send = Callable[[Call[Any]], Any]


class Middleware(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.seen: list[str] = []

    def noted(self, name: str) -> Callable[[Send], Send]:
        def around(next: Send) -> Send:
            def send(call: Call[Any]) -> Any:
                self.seen.append(f"{name} {call.method} {call.queue!r} {call.name!r}")
                return next(call)

            return send

        return around

    def test_the_first_middleware_of_a_client_is_the_outermost(self) -> None:
        with Client(self.server.url, middleware=[self.noted("outer"), self.noted("inner")]) as client:
            client.queue("a.b").add({"key": "k"})
            client.queue("a.b").get()
            client.queue("a.b").parked_errors()
            for named in (lambda: client.queue("a.b").renumber_source("add", 3), lambda: client.queue("a.b").index_values("delete")):
                with suppress(Problem):
                    named()
            client.queues()
            client.info()
        self.assertEqual(self.seen[:2], ["outer POST 'a.b' 'add'", "inner POST 'a.b' 'add'"])
        outer = [line.removeprefix("outer ") for line in self.seen[2::2]]
        # A source and an index with the names of calls.
        named_as_calls = ["PATCH 'a.b' 'sources'", "GET 'a.b' 'indexes'"]
        self.assertEqual(outer, ["GET 'a.b' ''", "GET 'a.b' 'errors'", *named_as_calls, "GET '' 'queues'", "GET '' 'info'"])

    def test_a_middleware_adds_headers_and_sees_errors(self) -> None:
        traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

        def traced(next: Send) -> Send:
            def send(call: Call[Any]) -> Any:
                try:
                    return next(call.with_headers(traceparent=traceparent))
                except Problem as problem:
                    self.seen.append(problem.code or "")
                    raise

            return send

        with Client(self.server.url, middleware=[traced]) as client:
            queue = client.queue("q")
            queue.add({"key": "k"})
            self.assertEqual(queue.pop().items[0].deltas[0].traceparent, traceparent)
            with self.assertRaises(Problem):
                queue.add({})
        self.assertEqual(self.seen, ["no-key"])

    def test_a_middleware_of_a_worker_sees_what_its_handler_returns_and_raises(self) -> None:
        def noted(next: Handle) -> Handle:
            def handle(item: Item, context: Context) -> Outcome | None:
                try:
                    result = next(item, context)
                except ValueError as error:
                    self.seen.append(f"{context.queue} {item.key} {error}")
                    return Nack("as seen", delay="1h")
                self.seen.append(f"{context.queue} {item.key} {result}")
                return result

            return handle

        def work(item: Item, _: Context) -> None:
            if item.key == "bad":
                raise ValueError("no price")

        with self.server.client() as client:
            queue = client.queue("q")
            queue.add([{"key": "bad"}, {"key": "good"}])
            queue.close(at_once=True)
            Worker(queue, work, middleware=[noted]).run()
            self.assertEqual(self.seen, ["q bad no price", "q good None"])
            self.assertEqual(queue.item("bad").last_error, "as seen")

    def test_the_same_for_asyncio(self) -> None:
        def noted(next: AsyncHandle) -> AsyncHandle:
            async def handle(item: Item, context: Context) -> Outcome | None:
                self.seen.append(f"{context.queue} {item.key}")
                return await next(item, context)

            return handle

        def calls(next: Callable[[Call[Any]], Awaitable[Any]]) -> Callable[[Call[Any]], Awaitable[Any]]:
            async def send(call: Call[Any]) -> Any:
                self.seen.append(call.name)
                return await next(call)

            return send

        async def coroutine(item: Item, _: Context) -> None:
            await asyncio.sleep(0)

        async def run() -> None:
            async with aio.Client(self.server.url, middleware=[calls]) as client:
                for handler in (lambda item, context: None, coroutine):
                    queue = client.queue("q")
                    await queue.reopen() if self.seen else await queue.put_settings()
                    await queue.add({"key": "k"})
                    await queue.close(at_once=True)
                    await aio.Worker(queue, handler, middleware=[noted]).run()

        asyncio.run(run())
        self.assertEqual(self.seen.count("q k"), 2)
        self.assertLessEqual({"", "add", "close", "reopen", "pop"}, set(self.seen))

    def test_what_is_around_a_coroutine_function_is_one(self) -> None:
        async def handler(item: Item, context: Context) -> None:
            await asyncio.sleep(0)

        def plain(next: AsyncHandle) -> AsyncHandle:
            def handle(item: Item, context: Context) -> Awaitable[Outcome | None]:
                return next(item, context)

            return handle

        def asks(next: AsyncHandle) -> AsyncHandle:
            self.seen.append(str(inspect.iscoroutinefunction(next)))
            return next

        inner: AsyncHandle = handler
        wrap(inner, [asks, plain])
        self.assertEqual(self.seen, ["True"])

    def test_a_middleware_that_returns_no_handler_is_refused(self) -> None:
        for worker in (Worker, aio.Worker):
            with self.assertRaisesRegex(TypeError, "handler"):
                worker((aio.Queue if worker is aio.Worker else Queue)(unittest.mock.Mock(), "q"), lambda item, context: None, middleware=[lambda _: None])  # type: ignore[arg-type, list-item, return-value]


if __name__ == "__main__":
    unittest.main()
