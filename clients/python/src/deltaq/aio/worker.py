"""A worker with tasks: pops keys, runs a handler for each, and ends their leases."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from .. import calls
from ..arguments import check_queue
from ..durations import Duration
from ..errors import BadReply, Error, Problem
from ..json import Json
from ..leases import EXTEND_WAIT_SECONDS_MAX, Context, Held, Leases, extend_policy
from ..middleware import AsyncHandler, awaitable, wrap
from ..models import Item, Popped, Settled
from ..outcomes import Outcome, Release, log_failure, outcome_of
from ..popping import NO_LAST_POP, SILENT, Absence, WorkerSettings, settled_of
from ..retry import Attempts
from ..signatures import check_handler
from .client import Queue

log = logging.getLogger("deltaq")

#: Works on a key, as a coroutine or a function. It returns or raises an outcome; None is an Ack, and any other exception is a Nack with its message.
Handler = Callable[[Item, Context], Awaitable[Outcome | None] | Outcome | None]


class Worker:
    """Runs `handler` for each key of a queue, `concurrency` at once, in tasks. A handler whose lease is lost is cancelled.

    `batch` is the number of keys of one pop; None means `concurrency`. `grace` is how long a stop waits for running handlers, in seconds.

    `breaker` is the number of failures in a row, of different keys, that pause the worker. A nack is a failure, also by an exception; a key that is done or
    rejected ends the row. After a pause of 1 s the worker tries one key; each further failure doubles the pause, up to 1 minute, and a success ends it.

    With `group`, the worker takes only keys of this group, outside its turns. The empty text is the group without a name.

    `middleware` are functions of a handler that return a handler, such as decorators; both handlers are coroutine functions. The first is the outermost.
    """

    def __init__(
        self,
        queue: Queue,
        handler: Handler,
        *,
        name: str | None = None,
        concurrency: int = 1,
        batch: int | None = None,
        lease_duration: Duration | None = None,
        group: str | None = None,
        with_known: bool = False,
        with_diff: bool = False,
        wait: Duration = 20,
        grace: float = 30.0,
        breaker: int | None = None,
        middleware: Sequence[Callable[[AsyncHandler], AsyncHandler]] = (),
    ) -> None:
        check_queue(queue, Queue, "a worker", "deltaq.aio.Client")
        check_handler(handler, may_be_async=True)
        self.settings = WorkerSettings(name, concurrency, batch, lease_duration, with_known, with_diff, wait, grace, breaker, group)
        self._queue = queue
        self._handler: Handler = wrap(awaitable(handler), middleware) if middleware else handler
        check_handler(self._handler, may_be_async=True)
        self._leases = Leases(queue.name, breaker)
        self._ready: list[Held] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        # Whether the handlers that were still running were cancelled.
        self._has_given_up = False
        self._failure: Exception | None = None
        # The pop that is in flight.
        self._pop_task: asyncio.Task[Popped | None] | None = None
        # A future that each change completes; None while nobody waits for a change.
        self._changed: asyncio.Future[None] | None = None
        # The attempts of the last pop.
        self._pop_attempts = self._for_ever()

    def stop(self) -> None:
        """Stops the worker gracefully: running handlers finish, and keys that no handler has begun are released."""
        self._is_stopping = True
        self._leases.stop()
        self._notify()
        if self._pop_task is not None:
            self._pop_task.cancel()

    async def run(self, *, signals: bool = True) -> None:
        """Works until `stop`, or until the queue is closed. With `signals`, SIGTERM and SIGINT stop the worker, if this is the main thread.

        Raises the first error that is not temporary.
        """
        background = [asyncio.create_task(self._guard(part())) for part in (self._extend, self._expire, self._settle)]
        try:
            with _stop_on_signals(self.stop) if signals else contextlib.nullcontext():
                try:
                    await self._pop_all()
                except Error as error:
                    self._fail(error)
                await self._finish()
        finally:
            self._has_given_up = True
            left = [*background, *self._tasks]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    async def _guard(self, part: Coroutine[Any, Any, None]) -> None:
        """Runs a part of the worker. If the part fails, the worker fails."""
        try:
            await part
        except Exception as error:
            self._fail(error)

    def _notify(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    async def _wait(self, seconds: float | None = None) -> None:
        """Waits for a change, for at most `seconds`."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        # `wait_for` may lose a cancellation that arrives together with the change.
        await asyncio.wait([self._changed], timeout=seconds)

    def _for_ever(self) -> Attempts:
        return Attempts(self._queue.client.retry, for_ever=True)

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self.stop()

    # Popping.

    async def _pop_all(self) -> None:
        while True:
            while not self._is_stopping and not self._has_room():
                await self._wait(self._leases.breaker.wait(time.monotonic()))
            if self._is_stopping:
                return
            room = self._leases.breaker.room(time.monotonic())
            settles = self._leases.take_settles()
            pop_id = calls.new_pop_id()
            self._pop_task = asyncio.create_task(self._pop(pop_id, settles, room))
            self._notify()
            try:
                popped = await self._pop_task
            except asyncio.CancelledError:
                if not self._is_stopping:
                    raise
                await self._recover_pop(pop_id, settles)
                return
            finally:
                self._pop_task = None
            if popped is None:
                return
            self._take(popped, settles)

    def _has_room(self) -> bool:
        return not self._ready and self._leases.running < self.settings.concurrency and self._leases.breaker.room(time.monotonic()) != 0

    async def _pop(self, pop_id: str, settles: list[Json], room: int | None) -> Popped | None:
        """Pops until there is a reply; None if the queue is closed. Drops `settles` if the queue does not exist, and keeps popping until it does."""
        absence = Absence(self._queue.name)
        while True:
            call = self.settings.pop(self._queue.name, pop_id, settles, max=room)
            self._pop_attempts = self._for_ever()
            try:
                return await self._queue.client.send(call, attempts=self._pop_attempts)
            except Problem as problem:
                self._settled(settles, settled_of(problem))
                if problem.code == "queue-closed":
                    return None
                if problem.code != "queue-not-found":
                    raise
                # The queue was deleted, so its leases have ended.
                settles.clear()
            except BadReply:
                self._unsettled(settles)
                raise
            await asyncio.sleep(absence.wait())

    def _take(self, popped: Popped, settles: Sequence[Json]) -> None:
        self._settled(settles, popped.settled)
        self._ready += self._leases.take(popped.items, time.monotonic())
        self._start_handlers()

    async def _recover_pop(self, pop_id: str, settles: Sequence[Json]) -> None:
        """Repeats the pop that `stop` has cancelled, so that the keys that it leased are released and its settles are not lost."""
        if self._pop_attempts.is_unsent:
            # No server has received the pop, so it has leased nothing.
            self._unsettled(settles)
            return
        call = self.settings.pop(self._queue.name, pop_id, settles, wait=0)
        attempts = self._for_ever()
        try:
            sent = self._queue.client.send(call, attempts=attempts)
            self._take(await asyncio.wait_for(sent, self.settings.last_calls_seconds), settles)
        except Problem as problem:
            self._settled(settles, settled_of(problem))
        except (Error, asyncio.TimeoutError):
            self._unsettled(settles)
            log.warning(NO_LAST_POP, self._queue.name, attempts.last_error or self._pop_attempts.last_error or SILENT)

    # Handlers.

    def _start_handlers(self) -> None:
        while self._ready and self._leases.running < self.settings.concurrency and not self._is_stopping:
            held = self._ready.pop(0)
            if self._leases.start(held):
                task = asyncio.create_task(self._handle(held))
                held.on_lost = task.cancel
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._notify()

    async def _handle(self, held: Held) -> None:
        result: object = Release()
        try:
            result = self._handler(held.item, held.context)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError as error:
            # A lost lease is not settled. If the worker ends, the key is released. Any other cancellation comes from the handler itself.
            result = Release() if held.context.is_lost or self._has_given_up else error
        except Exception as error:
            result = error
        finally:
            log_failure(result, held.item, self._queue.name)
            self._leases.finish(held, outcome_of(result, held.item), time.monotonic())
            self._start_handlers()

    # Settles and extends.

    async def _settle(self) -> None:
        while True:
            await self._wait_until(self._settle_at)
            settles = self._leases.take_settles()
            try:
                results = await self._queue.client.send(calls.settle(self._queue.name, settles), attempts=self._for_ever())
                self._settled(settles, results)
            except Error as error:
                self._settled(settles, [])
                if not (isinstance(error, Problem) and error.code == "queue-not-found"):
                    self._fail(error)

    def _settle_at(self) -> float | None:
        """The time at which outcomes must be sent without a pop. While a pop waits, they are sent at once."""
        at = self._leases.settle_at()
        return 0.0 if at is not None and (self._pop_task is not None or self._is_stopping) else at

    def _settled(self, settles: Sequence[Json], results: Sequence[Settled]) -> None:
        for result in self._leases.settled(settles, results):
            log.warning("the lease %s had ended (%s) before its %s", result.lease_id, result.outcome, result.how)
        self._notify()

    def _unsettled(self, settles: Sequence[Json]) -> None:
        self._leases.unsettled(settles)
        self._notify()

    async def _extend(self) -> None:
        attempts = Attempts(extend_policy(self._queue.client.retry), for_ever=True)
        while True:
            await self._wait_until(self._leases.extend_at)
            now = time.monotonic()
            self._leases.expire(now)
            lease_ids, patience = self._leases.take_extends(now), self._leases.extend_patience(now)
            if not lease_ids:
                continue
            call = calls.extend(self._queue.name, lease_ids, lease_duration=self.settings.lease_duration)
            try:
                self._leases.extended(await self._queue.client.send_once(call, timeout=patience), now)
                attempts.failures = 0
            except Error as error:
                self._leases.extend_failed(time.monotonic(), attempts.wait_after(error) or EXTEND_WAIT_SECONDS_MAX)
                self._queue.client.outage.repeats(error, call, attempts)

    async def _expire(self) -> None:
        while True:
            await self._wait_until(self._leases.lost_at)
            self._leases.expire(time.monotonic())

    async def _wait_until(self, at: Callable[[], float | None]) -> None:
        """Waits until that time."""
        while True:
            time_ = at()
            seconds = None if time_ is None else time_ - time.monotonic()
            if seconds is not None and seconds <= 0:
                return
            await self._wait(seconds)

    # The end.

    async def _finish(self) -> None:
        """Waits for running handlers, and settles."""
        self._is_stopping = True
        self._leases.stop()
        self._leases.release_waiting(time.monotonic())
        self._ready.clear()
        self._notify()
        if self._tasks:
            _, running = await asyncio.wait(set(self._tasks), timeout=self.settings.grace)
            self._has_given_up = True
            for task in running:
                task.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_settled(), self.settings.last_calls_seconds)

    async def _all_settled(self) -> None:
        while self._tasks or self._leases.has_settles:
            await self._wait(0.1 if self._tasks else None)


@contextlib.contextmanager
def _stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Makes SIGTERM and SIGINT call `stop`. Outside the main thread, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
