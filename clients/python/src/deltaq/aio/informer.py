"""An informer with a task: keeps a local store in step with a view of a queue, and calls handlers for each change."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping

from .. import calls
from ..arguments import check_queue
from ..cache import Cache, Index, Store
from ..durations import Duration, duration_seconds
from ..errors import Error
from ..handlers import Handler, Notification, check_handlers
from ..json import Json
from ..watching import Watching, check_watch
from .client import Queue

log = logging.getLogger("deltaq")


class Registration:
    """A handler of an informer."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._synced = asyncio.Event()

    def has_synced(self) -> bool:
        """Whether the handler has been called for every object of its first list."""
        return self._synced.is_set()

    async def wait_for_sync(self) -> bool:
        """Waits until `has_synced`."""
        return await self._synced.wait()

    def mark_synced(self) -> None:
        """Only for the informer."""
        self._synced.set()


class Informer:
    """Lists and watches a view of a queue. Use it in an `async with` block, or call `start` and `stop`.

    Handlers are coroutines or functions. They are called one at a time, in the order of the changes. A slow handler slows the watch; several changes of
    a key then arrive as one, with the newest state. An exception of a handler is logged. `resync` is the interval at which handlers get every object again.
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
        check_queue(queue, Queue, "an informer", "deltaq.aio.Client")
        check_watch(view, bookmark)
        self.store = Store(indexes)
        #: The error that ended the informer; None if there was none.
        self.error: BaseException | None = None
        self._queue = queue
        self._view, self._prefix, self._shard, self._bookmark = view, prefix, shard, bookmark
        self._resync_seconds = None if resync is None else duration_seconds(resync)
        self._cache = Cache(self.store)
        self._registrations: list[Registration] = []
        # Held while a row is applied and its handlers are called.
        self._lock = asyncio.Lock()
        # Set once the store has synced, or the informer has ended.
        self._settled = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Informer:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def add_handler(self, handler: Handler) -> Registration:
        """Adds a handler. If the store has synced, the handler gets an add for each object before this method returns. A handler must not call it."""
        check_handlers(handler, may_be_async=True)
        registration = Registration(handler)
        async with self._lock:
            if self._cache.has_synced:
                await self._notify(handler.first(self.store))
                registration.mark_synced()
            self._registrations.append(registration)
        return registration

    def start(self) -> None:
        """Starts the informer in a new task."""
        if self._tasks:
            raise RuntimeError("the informer was started before")
        self._tasks = [asyncio.create_task(self._run())]
        if self._resync_seconds:
            self._tasks.append(asyncio.create_task(self._resync(self._resync_seconds)))

    async def stop(self) -> None:
        """Ends the watch, and waits until no handler runs. A handler must not call it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def has_synced(self) -> bool:
        """Whether the store has had a complete list."""
        return self._cache.has_synced

    async def wait_for_sync(self) -> bool:
        """Waits until `has_synced`. Returns False if the informer was stopped. Raises the error that ended the informer."""
        await self._settled.wait()
        if self.error is not None:
            raise self.error
        return self.has_synced()

    async def _run(self) -> None:
        try:
            await self._watch_all()
        except Exception as error:
            log.error("the informer of queue %r has ended: %r", self._queue.name, error)
            self.error = error
        finally:
            self._settled.set()

    async def _watch_all(self) -> None:
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
                async for row in self._queue.client.rows(call, self._bookmark):
                    watching.received()
                    await self._apply(row)
            except Error as error:
                failure = error
            wait = watching.wait_after(failure, call)
            if wait is None:
                assert failure is not None
                raise failure
            await asyncio.sleep(wait)

    async def _apply(self, row: Json) -> None:
        async with self._lock:
            had_synced = self._cache.has_synced
            for event in self._cache.apply(row):
                notifications = [registration.handler.notification(event) for registration in self._registrations]
                await self._notify([notification for notification in notifications if notification])
            if self._cache.has_synced and not had_synced:
                for registration in self._registrations:
                    registration.mark_synced()
                self._settled.set()

    async def _notify(self, notifications: list[Notification]) -> None:
        for function, arguments in notifications:
            try:
                result = function(*arguments)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                log.exception("a handler of the informer of queue %r failed", self._queue.name)

    async def _resync(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            async with self._lock:
                for registration in self._registrations:
                    await self._notify(registration.handler.resync(self.store))


async def wait_for_cache_sync(*informers: Informer | Registration) -> bool:
    """Waits until all of these informers and handlers have synced. Returns False if one of them was stopped."""
    return all(await asyncio.gather(*(informer.wait_for_sync() for informer in informers)))
