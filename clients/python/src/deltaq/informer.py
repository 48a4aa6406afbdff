"""An informer with threads: keeps a local store in step with a view of a queue, and calls handlers for each change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from . import calls
from .arguments import check_queue
from .cache import Cache, Index, Store
from .client import Queue
from .durations import Duration, duration_seconds
from .errors import Cancelled, Error
from .handlers import Handler, Notification, check_handlers
from .json import Json
from .transport import Cancel
from .watching import Watching, check_watch

log = logging.getLogger("deltaq")


class Registration:
    """A handler of an informer."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._synced = threading.Event()

    def has_synced(self) -> bool:
        """Whether the handler has been called for every object of its first list."""
        return self._synced.is_set()

    def wait_for_sync(self, timeout: float | None = None) -> bool:
        """Waits until `has_synced`. Returns False after the timeout."""
        return self._synced.wait(timeout)

    def mark_synced(self) -> None:
        """Only for the informer."""
        self._synced.set()


class Informer:
    """Lists and watches a view of a queue. Use it in a `with` block, or call `start` and `stop`.

    Handlers are called one at a time, in the order of the changes. A slow handler slows the watch; several changes of a key then arrive as one, with
    the newest state. An exception of a handler is logged. `resync` is the interval at which handlers get every object again.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        view: str = "latest",
        prefix: str | None = None,
        shard: str | None = None,
        indexes: Mapping[str, Index] | None = None,
        resync: Duration | None = None,
        bookmark: Duration | None = None,
    ) -> None:
        check_queue(queue, Queue, "an informer", "deltaq.Client")
        check_watch(view, bookmark)
        self.store = Store(indexes)
        #: The error that ended the informer; None if there was none.
        self.error: BaseException | None = None
        self._queue = queue
        self._view, self._prefix, self._shard, self._bookmark = view, prefix, shard, bookmark
        self._resync_seconds = None if resync is None else duration_seconds(resync)
        self._cache = Cache(self.store)
        self._registrations: list[Registration] = []
        # Held while a row is applied and its handlers are called. The lock is reentrant, because a handler may add a handler.
        self._lock = threading.RLock()
        # Set once the store has synced, or the informer has ended.
        self._settled = threading.Event()
        self._cancel = Cancel()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Informer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def add_handler(self, handler: Handler) -> Registration:
        """Adds a handler. If the store has synced, the handler gets an add for each object before this method returns."""
        check_handlers(handler, may_be_async=False)
        registration = Registration(handler)
        with self._lock:
            if self._cache.has_synced:
                self._notify(handler.first(self.store))
                registration.mark_synced()
            self._registrations.append(registration)
        return registration

    def start(self) -> None:
        """Starts the informer in a new thread."""
        if self._threads:
            raise RuntimeError("the informer was started before")
        targets = [self._run, self._resync] if self._resync_seconds else [self._run]
        self._threads = [threading.Thread(target=target, name="deltaq-informer", daemon=True) for target in targets]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the watch, and waits until no handler runs. A handler must not call it."""
        self._cancel.set()
        for thread in self._threads:
            thread.join()

    def has_synced(self) -> bool:
        """Whether the store has had a complete list."""
        return self._cache.has_synced

    def wait_for_sync(self, timeout: float | None = None) -> bool:
        """Waits until `has_synced`. Returns False after the timeout, or if the informer was stopped. Raises the error that ended the informer."""
        self._settled.wait(timeout)
        if self.error is not None:
            raise self.error
        return self.has_synced()

    def _run(self) -> None:
        try:
            self._watch_all()
        except Cancelled:
            pass
        except BaseException as error:
            log.error("the informer of queue %r has ended: %r", self._queue.name, error)
            self.error = error
        finally:
            self._settled.set()

    def _watch_all(self) -> None:
        watching = Watching(self._cache, self._queue.client.retry, self._queue.client.outage)
        while True:
            failure: Error | None = None
            call = calls.watch(
                self._queue.name,
                view=self._view,
                resource_version=self._cache.begin(),
                prefix=self._prefix,
                shard=self._shard,
                bookmark=self._bookmark,
            )
            try:
                for row in self._queue.client.rows(call, self._cancel, self._bookmark):
                    watching.received()
                    self._apply(row)
            except Cancelled:
                raise
            except Error as error:
                failure = error
            wait = watching.wait_after(failure, call)
            if wait is None:
                assert failure is not None
                raise failure
            if self._cancel.wait(wait):
                return

    def _apply(self, row: Json) -> None:
        with self._lock:
            had_synced = self._cache.has_synced
            for event in self._cache.apply(row):
                notifications = [registration.handler.notification(event) for registration in self._registrations]
                self._notify([notification for notification in notifications if notification])
            if self._cache.has_synced and not had_synced:
                for registration in self._registrations:
                    registration.mark_synced()
                self._settled.set()

    def _notify(self, notifications: list[Notification]) -> None:
        for function, arguments in notifications:
            try:
                function(*arguments)
            except Exception:
                log.exception("a handler of the informer of queue %r failed", self._queue.name)

    def _resync(self) -> None:
        assert self._resync_seconds is not None
        while not self._cancel.wait(self._resync_seconds):
            with self._lock:
                for registration in self._registrations:
                    self._notify(registration.handler.resync(self.store))


def wait_for_cache_sync(*informers: Informer | Registration, timeout: float | None = None) -> bool:
    """Waits until all of these informers and handlers have synced. Returns False after the timeout."""
    end = None if timeout is None else time.monotonic() + timeout
    waits: list[Any] = [informer.wait_for_sync for informer in informers]
    return all(wait(None if end is None else max(end - time.monotonic(), 0.0)) for wait in waits)
