"""A reflector: sends the lists and changes of a source to a queue, in order, each one once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .client import Queue
from .errors import Problem
from .models import Produced
from .reflecting import Entry, Replace, ReplaceOptions, Sequence
from .retry import Attempts
from .transport import Cancel


class Reflector:
    """Keeps a queue in step with a source. One reflector per source: two would use each other's sequence numbers.

    Lists are sent with `only_changed`. Calls are repeated for ever while their errors are retryable.
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
    ) -> None:
        options = ReplaceOptions(only_changed, max_delete_percent, max_deletes, allow_empty)
        self._queue = queue
        self._sequence = Sequence(queue.name, source, options)
        self._cancel = Cancel()

    def run(self, stream: Iterable[Entry], *, on_refused: Callable[[Entry, Problem], None] | None = None) -> None:
        """Applies each entry of a stream. `on_refused` gets the entries that the server refuses, such as lists that would delete most keys; without it, the
        refusal is raised. The last list that was applied stays in force."""
        for entry in stream:
            try:
                self.apply(entry)
            except Problem as problem:
                if on_refused is None or problem.is_retryable:
                    raise
                on_refused(entry, problem)

    def apply(self, entry: Entry) -> Produced:
        """Applies one entry."""
        if isinstance(entry, Replace):
            entry = Replace(list(entry.objects))
        client = self._queue.client
        while True:
            self._find_last()
            attempts = Attempts(client.retry, for_ever=True)
            reply = client.send(self._sequence.call(entry), cancel=self._cancel, attempts=attempts)
            if self._sequence.is_applied(reply, attempts.failures):
                return reply

    def stop(self) -> None:
        """Ends `run` and `apply` with `Cancelled`."""
        self._cancel.set()

    def _find_last(self) -> None:
        while call := self._sequence.ask():
            attempts = Attempts(self._queue.client.retry, for_ever=True)
            try:
                self._sequence.found(self._queue.client.send(call, cancel=self._cancel, attempts=attempts))
            except Problem as problem:
                if problem.code != "queue-not-found":
                    raise
                self._sequence.not_found()
