"""Tests of workers that stop while the server is away."""

from __future__ import annotations

import asyncio
import json
import time
import unittest
import unittest.mock
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from deltaq import BadReply, Cancelled, ConnectionLost, Context, Item, Lease, Popped, Problem, Queue, RetryOptions, Settled, Worker, aio, calls
from deltaq.outage import Outage
from deltaq.popping import ABSENT
from deltaq.transport import Cancel

LEASE_MS = 3000
#: How long the last calls may take, in seconds.
LAST_CALLS_SECONDS = 1.0
#: Longer than the last calls and the lease, in seconds.
WORK_SECONDS = 4.5


class Service:
    """Takes the place of a client. The first pop has a key, and no other pop gets a reply."""

    retry = RetryOptions()

    def __init__(self) -> None:
        self.pops = 0
        #: Stops the worker, while its second pop waits.
        self.stop: Callable[[], None] = lambda: None
        self.settled: list[tuple[str, str]] = []

    def reply(self, call: calls.Call[Any]) -> Any:
        """None: the call gets no reply."""
        if "/pop" in call.target:
            self.pops += 1
            if self.pops == 2:
                self.stop()
            return Popped([Item("a", Lease("a-1", 1, "w", "", LEASE_MS), 1, 0, False, [])], [], False, False) if self.pops == 1 else None
        body = json.loads(call.body or b"")
        if "/extend" in call.target:
            return [Settled(lease_id, "extend", "ok", expires_in_ms=LEASE_MS) for lease_id in body["lease_ids"]]
        self.settled += [(entry["lease_id"], entry["as"]) for entry in body["settle"]]
        return [Settled(entry["lease_id"], entry["as"], "ok") for entry in body["settle"]]

    def send(self, call: calls.Call[Any], *, cancel: Cancel, **_: object) -> Any:
        reply = None if cancel.is_set else self.reply(call)
        if reply is None:
            cancel.wait(10)
            raise Cancelled
        return reply

    def send_once(self, call: calls.Call[Any], **options: Any) -> Any:
        return self.send(call, **options)


class AsyncService(Service):
    async def send(self, call: calls.Call[Any], **_: object) -> Any:
        reply = self.reply(call)
        if reply is None:
            await asyncio.sleep(10)
        return reply

    async def send_once(self, call: calls.Call[Any], **_: object) -> Any:
        return await self.send(call)


class Unreadable(Service):
    """The second pop has a reply that can't be read."""

    def send(self, call: calls.Call[Any], **options: Any) -> Any:
        if "/pop" in call.target and self.pops == 1:
            raise BadReply("{}", is_json=True)
        return super().send(call, **options)


class Unextended(Service):
    """No extend gets a reply."""

    def __init__(self) -> None:
        super().__init__()
        self.outage = Outage(["http://localhost:1"])

    def reply(self, call: calls.Call[Any]) -> Any:
        if "/extend" in call.target:
            raise ConnectionLost("lost")
        return super().reply(call)


class AsyncUnextended(Unextended, AsyncService):
    pass


class Absent(Service):
    """The queue does not exist at the first two pops."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 2

    def reply(self, call: calls.Call[Any]) -> Any:
        if "/pop" in call.target and self.left > 0:
            self.left -= 1
            raise Problem(404, {"code": "queue-not-found", "retryable": False})
        return super().reply(call)


class AsyncAbsent(Absent, AsyncService):
    pass


class Stops(unittest.TestCase):
    def setUp(self) -> None:
        self.lost: list[bool] = []

    def run_threads(self, service: Any, work_seconds: float, concurrency: int) -> None:
        def handle(_: Item, context: Context) -> None:
            time.sleep(work_seconds)
            self.lost.append(context.is_lost)

        worker = Worker(Queue(service, "q"), handle, concurrency=concurrency)
        worker.settings = replace(worker.settings, last_calls_seconds=LAST_CALLS_SECONDS)
        service.stop = worker.stop
        worker.run(signals=False)

    def run_tasks(self, service: Any, work_seconds: float, concurrency: int) -> None:
        async def handle(_: Item, context: Context) -> None:
            await asyncio.sleep(work_seconds)
            self.lost.append(context.is_lost)

        async def run() -> None:
            worker = aio.Worker(aio.Queue(service, "q"), handle, concurrency=concurrency)
            worker.settings = replace(worker.settings, last_calls_seconds=LAST_CALLS_SECONDS)
            service.stop = worker.stop
            await worker.run(signals=False)

        asyncio.run(run())

    def test_a_running_handler_is_acknowledged_after_the_last_pop_was_given_up(self) -> None:
        for run, service in ((self.run_threads, Service()), (self.run_tasks, AsyncService())):
            run(service, WORK_SECONDS, 2)
            self.assertEqual((service.pops, service.settled), (3, [("a-1", "ack")]))
        self.assertEqual(self.lost, [False, False])

    def test_the_outcomes_of_a_pop_that_was_given_up_are_sent(self) -> None:
        for run, service in ((self.run_threads, Service()), (self.run_tasks, AsyncService())):
            run(service, 0.0, 1)
            self.assertEqual((service.pops, service.settled), (3, [("a-1", "ack")]))

    def test_extends_that_are_repeated_are_logged(self) -> None:
        for run, service in ((self.run_threads, Unextended()), (self.run_tasks, AsyncUnextended())):
            with self.assertLogs("deltaq", "WARNING") as logs:
                run(service, LEASE_MS / 2000, 1)
            self.assertEqual(logs.output[0], 'WARNING:deltaq:lost; the extend of the queue "q" is repeated')

    def test_a_wrong_value_of_a_handler_is_a_failure_that_is_logged(self) -> None:
        wrong: Any = lambda item, context: 7  # noqa: E731
        runs: list[tuple[Service, Callable[[Service], None]]] = [
            (Service(), lambda service: self.run_wrong(Worker(Queue(service, "q"), wrong), service)),  # type: ignore[arg-type]
            (AsyncService(), lambda service: self.run_wrong_async(service, wrong)),
        ]
        for service, run in runs:
            with self.assertLogs("deltaq", "WARNING") as logs:
                run(service)
            said = [line for line in logs.output if "handler" in line]
            self.assertEqual(len(said), 1)
            self.assertIn("WARNING:deltaq:the handler failed: key 'a', queue q, attempt 1: the handler returned 7: it must return None", said[0])
            self.assertEqual(service.settled, [("a-1", "nack")])

    def run_wrong(self, worker: Worker, service: Service) -> None:
        worker.settings = replace(worker.settings, last_calls_seconds=LAST_CALLS_SECONDS)
        service.stop = worker.stop
        worker.run(signals=False)

    def run_wrong_async(self, service: Any, wrong: Any) -> None:
        async def run() -> None:
            worker = aio.Worker(aio.Queue(service, "q"), wrong)
            worker.settings = replace(worker.settings, last_calls_seconds=LAST_CALLS_SECONDS)
            service.stop = worker.stop
            await worker.run(signals=False)

        asyncio.run(run())

    def test_a_queue_that_does_not_exist_is_waited_for_and_logged_once(self) -> None:
        with unittest.mock.patch("deltaq.popping.ABSENT", RetryOptions(first=0.01)):
            for run, service in ((self.run_threads, Absent()), (self.run_tasks, AsyncAbsent())):
                with self.assertLogs("deltaq", "WARNING") as logs:
                    run(service, 0.0, 1)
                said = [line for line in logs.output if "exist" in line]
                self.assertEqual(said, ["WARNING:deltaq:queue q does not exist yet"])
                self.assertEqual(service.settled, [("a-1", "ack")])

    def test_the_waits_for_a_queue_double_up_to_15_seconds(self) -> None:
        self.assertEqual([ABSENT.backoff(number) for number in range(1, 7)], [1.0, 2.0, 4.0, 8.0, 15.0, 15.0])

    def test_the_outcomes_of_a_pop_whose_reply_cant_be_read_are_sent(self) -> None:
        service = Unreadable()
        with self.assertRaises(BadReply):
            self.run_threads(service, 0.0, 1)
        self.assertEqual(service.settled, [("a-1", "ack")])


if __name__ == "__main__":
    unittest.main()
