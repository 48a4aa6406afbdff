"""A reflector: sends the lists and changes of a source to a queue, in order; each takes effect once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from .arguments import check_queue, check_text, list_of
from .client import Queue
from .errors import NotJson, Problem
from .json import Json
from .models import Produced
from .reflecting import Entry, Parts, Refusal, Replace, ReplaceOptions, Sequence, Steps, check_entry, is_about_the_entry, left_out, poll_wait
from .retry import Attempts
from .transport import Cancel

log = logging.getLogger("deltaq")

T = TypeVar("T")


def polled(fetch: Callable[[], Iterable[Json]], interval: float) -> Iterator[Replace]:
    """Polls a source: yields the list of `fetch` about every `interval` seconds. An error of `fetch` is logged, and the last list stays in force."""
    while True:
        try:
            objects = list(fetch())
        except Exception as error:
            log.warning("can't list the source, so its last list stays in force: %s: %s", type(error).__name__, error)
        else:
            yield Replace(objects)
        time.sleep(poll_wait(interval))


class Reflector:
    """Keeps a queue in step with a source. Run one reflector per source: two would take sequence numbers from each other.

    Lists are sent with `only_changed` by default. After a temporary error a call is repeated without limit. With `skip_invalid`, objects
    that the queue refuses, or that can't be written as JSON, are left out and logged: their keys keep what they have. A list is still refused if more than one
    object, and more than a tenth of it, is like that.
    """

    def __init__(
        self,
        queue: Queue,
        source: str,
        *,
        only_changed: bool = True,
        max_delete_percent: int | None = None,
        max_deletes: int | None = None,
        allow_empty: bool = False,
        skip_invalid: bool = True,
    ) -> None:
        check_queue(queue, Queue, "a reflector", "deltaq.Client")
        check_text(source, "the source", "'shop'")
        options = ReplaceOptions(only_changed, max_delete_percent, max_deletes, allow_empty, skip_invalid)
        self._queue = queue
        self._sequence = Sequence(queue.name, source, options)
        self._cancel = Cancel()

    def run(self, stream: Iterable[Entry], *, on_refused: Callable[[Entry, Refusal], None] | None = None) -> None:
        """Applies each entry of a stream. `on_refused` gets the entries that the server refuses, such as lists that would delete most keys, and those
        that can't be written as JSON. Without it, such refusals are logged. The last list that was applied stays in force. Refusals that are not about
        the entry, such as 401, are raised, and so are `QueueDeleted` and `QueueRestored`."""
        for entry in stream:
            try:
                self.apply(entry)
            except (Problem, NotJson) as refusal:
                if not is_about_the_entry(refusal):
                    raise
                if on_refused is None:
                    log.warning("source %r: %s", self._sequence.source, refusal)
                else:
                    on_refused(entry, refusal)

    def apply(self, entry: Entry) -> Produced:
        """Applies one entry."""
        check_entry(entry)
        if isinstance(entry, Replace):
            entry = Replace(list(list_of("Replace", entry.objects)))
        parts = Parts(entry)
        for part in parts:
            try:
                parts.accepted(part, self._apply(part))
            except (Problem, NotJson) as refusal:
                parts.refused(part, refusal)
        return parts.reply()

    def _apply(self, entry: Entry) -> Produced:
        """Applies an entry by one call."""
        self._make(self._sequence.check(time.monotonic(), entry))
        while True:
            self._make(self._sequence.find_last())
            attempts = Attempts(self._queue.client.retry, for_ever=True)
            reply = self._queue.client.send(self._sequence.call(entry), cancel=self._cancel, attempts=attempts)
            if self._make(self._sequence.applied(reply, entry, attempts.failures)):
                for text in left_out(self._queue.name, self._sequence.source, reply):
                    log.warning("%s", text)
                return reply

    def stop(self) -> None:
        """Ends `run` and `apply` with `Cancelled`."""
        self._cancel.set()

    def _make(self, steps: Steps[T]) -> T:
        """Makes the calls of `steps`."""
        retry = self._queue.client.retry
        try:
            call = next(steps)
            while True:
                try:
                    reply = self._queue.client.send(call, cancel=self._cancel, attempts=Attempts(retry, for_ever=True))
                except Problem as problem:
                    call = steps.throw(problem)
                else:
                    call = steps.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
