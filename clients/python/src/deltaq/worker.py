"""A worker with threads: pops keys, runs a handler for each, and ends their leases."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from . import calls
from .arguments import check_queue
from .client import Queue, pause
from .durations import Duration
from .errors import BadReply, Cancelled, Error, Problem
from .json import Json
from .leases import EXTEND_WAIT_SECONDS_MAX, Context, Held, Leases, extend_policy
from .middleware import wrap
from .models import Item, Popped, Settled
from .outcomes import Outcome, log_failure, outcome_of
from .popping import NO_LAST_POP, SILENT, Absence, WorkerSettings, settled_of
from .retry import Attempts
from .signatures import check_handler
from .transport import Cancel

log = logging.getLogger("deltaq")

#: Maximum wait of a thread, in seconds. After that, the thread checks its condition again.
WAIT_SECONDS_MAX = 3600.0

#: Works on a key. It returns or raises an outcome; None is an Ack, and any other exception is a Nack with its message.
Handler = Callable[[Item, Context], Outcome | None]


class Worker:
    """Runs `handler` for each key of a queue, `concurrency` at once, in threads; with a concurrency of 1, in the thread that calls `run`.

    `batch` is the number of keys of one pop; None means `concurrency`. `grace` is how long a stop waits for running handlers, in seconds; a handler in the
    thread of `run` always ends first.

    `breaker` is the number of failures in a row, of different keys, that pause the worker. A nack is a failure, also by an exception; a key that is done or
    rejected ends the row. After a pause of 1 s the worker tries one key; each further failure doubles the pause, up to 1 minute, and a success ends it.

    With `group`, the worker takes only keys of this group, outside its turns. The empty text is the group without a name.

    `middleware` are functions of a handler that return a handler, such as decorators. The first is the outermost.
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
        middleware: Sequence[Callable[[Handler], Handler]] = (),
    ) -> None:
        check_queue(queue, Queue, "a worker", "deltaq.Client")
        check_handler(handler, may_be_async=False)
        self.settings = WorkerSettings(name, concurrency, batch, lease_duration, with_known, with_diff, wait, grace, breaker, group)
        self._queue = queue
        self._handler = wrap(handler, middleware)
        check_handler(self._handler, may_be_async=False)
        self._leases = Leases(queue.name, breaker)
        # Guards everything below and `_leases`. Each condition wakes only the threads that wait for it.
        self._lock = threading.RLock()
        # For the thread that pops: there is room for more keys, or the worker ends.
        self._changed = threading.Condition(self._lock)
        # For the threads that run handlers: there are keys.
        self._has_keys = threading.Condition(self._lock)
        # For the thread that extends: there are new leases.
        self._has_leases = threading.Condition(self._lock)
        # For the thread that marks leases as lost, which makes no calls: there are new leases.
        self._has_ends = threading.Condition(self._lock)
        # For the thread that settles: there are outcomes.
        self._has_outcomes = threading.Condition(self._lock)
        # When these three threads wake up by themselves.
        self._wakes_at = {self._has_leases: 0.0, self._has_ends: 0.0, self._has_outcomes: 0.0}
        self._is_stopping = False
        self._has_ended = False
        self._is_popping = False
        self._failure: BaseException | None = None
        self._ready: list[Held] = []
        # The first cancels the waiting pop when the worker stops; the second cancels all other calls when their time limit has passed.
        self._pop_cancel = Cancel()
        self._cancel = Cancel()
        # The attempts of the last pop.
        self._pop_attempts = self._for_ever()

    def stop(self) -> None:
        """Stops the worker gracefully: running handlers finish, and keys that no handler has begun are released."""
        with self._changed:
            self._is_stopping = True
            self._leases.stop()
            self._notify_all()
        self._pop_cancel.set()

    def run(self, *, signals: bool = True) -> None:
        """Works until `stop`, or until the queue is closed. With `signals`, SIGTERM and SIGINT stop the worker, if this is the main thread.

        Raises the first error that is not temporary.
        """
        # A separate thread would cost a context switch for each key.
        handlers = self.settings.concurrency if self.settings.concurrency > 1 else 0
        for part in [self._handle] * handlers + [self._extend, self._expire, self._settle]:
            self._start_thread(part)
        with stop_on_signals(self.stop) if signals else _no_signals():
            try:
                self._pop_all()
            except Cancelled:
                pass
            except BaseException as error:
                self._fail(error)
            self._finish()
        if self._failure is not None:
            raise self._failure

    def _notify_all(self) -> None:
        for condition in (self._changed, self._has_keys, self._has_leases, self._has_ends, self._has_outcomes):
            condition.notify_all()

    def _start_thread(self, part: Callable[[], None]) -> None:
        """Runs a part of the worker in a thread. If the part fails, the worker fails."""

        def run() -> None:
            try:
                part()
            except BaseException as error:
                self._fail(error)

        # The threads are daemons, so that a handler that never returns does not keep the process alive.
        threading.Thread(target=run, name=f"deltaq{part.__name__.replace('_', '-')}", daemon=True).start()

    def _for_ever(self) -> Attempts:
        return Attempts(self._queue.client.retry, for_ever=True)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
        self.stop()

    # Popping.

    def _pop_all(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopping and not self._has_room():
                    self._changed.wait(self._leases.breaker.wait(time.monotonic()))
                if self._is_stopping:
                    return
                room = self._leases.breaker.room(time.monotonic())
                settles = self._leases.take_settles()
                self._is_popping = True
                self._wake(self._has_outcomes, self._settle_at())
            pop_id = calls.new_pop_id()
            try:
                popped = self._pop(pop_id, settles, room)
            except Cancelled:
                self._recover_pop(pop_id, settles)
                return
            finally:
                with self._changed:
                    self._is_popping = False
            if popped is None:
                return
            self._take(popped, settles)
            if self.settings.concurrency == 1:
                self._handle_taken()

    def _has_room(self) -> bool:
        return not self._ready and self._leases.running < self.settings.concurrency and self._leases.breaker.room(time.monotonic()) != 0

    def _pop(self, pop_id: str, settles: list[Json], room: int | None) -> Popped | None:
        """Pops until there is a reply; None if the queue is closed. Drops `settles` if the queue does not exist, and keeps popping until it does."""
        absence = Absence(self._queue.name)
        while True:
            call = self.settings.pop(self._queue.name, pop_id, settles, max=room)
            self._pop_attempts = self._for_ever()
            try:
                return self._queue.client.send(call, cancel=self._pop_cancel, attempts=self._pop_attempts)
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
            pause(absence.wait(), self._pop_cancel)

    def _take(self, popped: Popped, settles: Sequence[Json]) -> None:
        self._settled(settles, popped.settled)
        with self._changed:
            taken = self._leases.take(popped.items, time.monotonic())
            self._ready += taken
            self._has_keys.notify(len(taken))
            if taken:
                self._wake(self._has_leases, self._leases.extend_at())
                self._wake(self._has_ends, self._leases.lost_at())
            self._wake(self._has_outcomes, self._settle_at())

    def _recover_pop(self, pop_id: str, settles: Sequence[Json]) -> None:
        """Repeats the pop that `stop` has cancelled, so that the keys that it leased are released and its settles are not lost."""
        if self._pop_attempts.is_unsent:
            # No server has received the pop, so it has leased nothing.
            self._unsettled(settles)
            return
        call = self.settings.pop(self._queue.name, pop_id, settles, wait=0)
        # A timeout cancels only this call, because running handlers still need extends and settles.
        cancel, attempts = Cancel(), self._for_ever()
        with self._time_limit(cancel):
            try:
                self._take(self._queue.client.send(call, cancel=cancel, attempts=attempts), settles)
            except Problem as problem:
                self._settled(settles, settled_of(problem))
            except Error:
                self._unsettled(settles)
                log.warning(NO_LAST_POP, self._queue.name, attempts.last_error or self._pop_attempts.last_error or SILENT)

    # Handlers.

    def _handle(self) -> None:
        """The loop of a handler thread."""
        while True:
            with self._changed:
                while not self._has_ended and (self._is_stopping or not self._ready):
                    self._has_keys.wait()
                if self._has_ended:
                    return
                held = self._ready.pop(0)
                is_held = self._leases.start(held)
                if self._has_room():
                    self._changed.notify()
            if is_held:
                self._work_on(held)

    def _handle_taken(self) -> None:
        """Works on all keys in the thread that pops."""
        while True:
            with self._changed:
                if self._is_stopping or not self._ready:
                    return
                held = self._ready.pop(0)
                is_held = self._leases.start(held)
            if is_held:
                self._work_on(held)

    def _work_on(self, held: Held) -> None:
        result: object
        try:
            result = self._handler(held.item, held.context)
        except Exception as error:
            result = error
        except BaseException as error:
            # An exception such as SystemExit ends the worker, and the key has failed.
            self._finish_work(held, error)
            raise
        self._finish_work(held, result)

    def _finish_work(self, held: Held, result: object) -> None:
        log_failure(result, held.item, self._queue.name)
        with self._changed:
            self._leases.finish(held, outcome_of(result, held.item), time.monotonic())
            self._wake(self._has_outcomes, self._settle_at())
            if self._has_room() or self._is_stopping or self._leases.breaker.pause:
                self._changed.notify()

    # Settles and extends.

    def _settle(self) -> None:
        while True:
            with self._changed:
                self._wait_until(self._has_outcomes, self._settle_at)
                if self._has_ended:
                    return
                settles = self._leases.take_settles()
            if not settles:
                continue
            try:
                call = calls.settle(self._queue.name, settles)
                self._settled(settles, self._queue.client.send(call, cancel=self._cancel, attempts=self._for_ever()))
            except Cancelled:
                return
            except Error as error:
                self._settled(settles, [])
                if not (isinstance(error, Problem) and error.code == "queue-not-found"):
                    self._fail(error)

    def _settle_at(self) -> float | None:
        """The time at which outcomes must be sent without a pop. While a pop waits, they are sent at once."""
        at = self._leases.settle_at()
        return 0.0 if at is not None and (self._is_popping or self._is_stopping) else at

    def _settled(self, settles: Sequence[Json], results: Sequence[Settled]) -> None:
        with self._changed:
            stale = self._leases.settled(settles, results)
            self._changed.notify_all()
        for result in stale:
            log.warning("the lease %s had ended (%s) before its %s", result.lease_id, result.outcome, result.how)

    def _unsettled(self, settles: Sequence[Json]) -> None:
        with self._changed:
            self._leases.unsettled(settles)
            self._has_outcomes.notify()

    def _extend(self) -> None:
        attempts = Attempts(extend_policy(self._queue.client.retry), for_ever=True)
        while True:
            with self._changed:
                self._wait_until(self._has_leases, self._leases.extend_at)
                if self._has_ended:
                    return
                now = time.monotonic()
                self._leases.expire(now)
                lease_ids, patience = self._leases.take_extends(now), self._leases.extend_patience(now)
            if not lease_ids:
                continue
            call = calls.extend(self._queue.name, lease_ids, lease_duration=self.settings.lease_duration)
            try:
                extended = self._queue.client.send_once(call, cancel=self._cancel, timeout=patience)
            except Cancelled:
                return
            except Error as error:
                wait = attempts.wait_after(error) or EXTEND_WAIT_SECONDS_MAX
                self._queue.client.outage.repeats(error, call, attempts)
                with self._changed:
                    self._leases.extend_failed(time.monotonic(), wait)
                continue
            attempts.failures = 0
            with self._changed:
                self._leases.extended(extended, now)

    def _expire(self) -> None:
        while True:
            with self._changed:
                self._wait_until(self._has_ends, self._leases.lost_at)
                if self._has_ended:
                    return
                self._leases.expire(time.monotonic())

    def _wake(self, condition: threading.Condition, at: float | None) -> None:
        """Wakes the thread of the condition if its current wait ends after that time."""
        if at is not None and at < self._wakes_at[condition]:
            condition.notify()

    def _wait_until(self, condition: threading.Condition, at: Callable[[], float | None]) -> None:
        """Waits until that time, or until the worker has ended. The caller holds the lock."""
        while not self._has_ended:
            time_ = at()
            seconds = None if time_ is None else time_ - time.monotonic()
            if seconds is not None and seconds <= 0:
                return
            seconds = WAIT_SECONDS_MAX if seconds is None else min(seconds, WAIT_SECONDS_MAX)
            self._wakes_at[condition] = time.monotonic() + seconds
            condition.wait(seconds)

    # The end.

    def _finish(self) -> None:
        """Waits for running handlers, and settles."""
        with self._changed:
            self._is_stopping = True
            self._leases.stop()
            self._leases.release_waiting(time.monotonic())
            self._ready.clear()
            self._notify_all()
            self._changed.wait_for(lambda: self._leases.running == 0, self.settings.grace)
        with self._time_limit(self._cancel), self._changed:
            self._changed.wait_for(lambda: not self._leases.has_settles or self._cancel.is_set)
            self._has_ended = True
            self._notify_all()
        self._cancel.set()

    @contextmanager
    def _time_limit(self, cancel: Cancel) -> Iterator[None]:
        """Sets `cancel` if the block takes too long."""

        def end() -> None:
            cancel.set()
            with self._changed:
                self._changed.notify_all()

        timer = threading.Timer(self.settings.last_calls_seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


@contextmanager
def stop_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Makes SIGTERM and SIGINT call `stop`. A new thread does this, because a signal handler must not take locks. Outside the main thread, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()

    def wait() -> None:
        if reader.recv(1) == b"s":
            stop()

    thread = threading.Thread(target=wait, name="deltaq-signals", daemon=True)
    thread.start()
    signals = (signal.SIGTERM, signal.SIGINT)
    descriptor = writer.fileno()
    previous = [signal.signal(number, lambda *_: void(os.write(descriptor, b"s"))) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, previous, strict=True):
            signal.signal(number, handler)
        writer.send(b"e")
        thread.join()
        reader.close()
        writer.close()


def void(_: object) -> None:
    """Drops a result."""
