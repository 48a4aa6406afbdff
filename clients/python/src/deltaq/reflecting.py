"""What a reflector sends: the lists and changes of a source, each with a sequence number. No input or output."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import calls
from .calls import Call
from .errors import NotJson, Problem, QueueDeleted
from .json import Json
from .models import Page, Produced


@dataclass(frozen=True)
class Replace:
    """The whole list of a source."""

    objects: Iterable[Json]


@dataclass(frozen=True)
class Change:
    """A change of a source. `type` is `Added`, `Updated` or `Deleted`; a deletion needs only the key."""

    type: str
    object: Any = None
    key: str | None = None

    @classmethod
    def updated(cls, object: Json) -> Change:
        return cls("Updated", object)

    @classmethod
    def deleted(cls, key: str) -> Change:
        return cls("Deleted", None, key)

    def delta(self) -> Json:
        fields = {"type": self.type, "object": self.object, "key": self.key}
        return {name: value for name, value in fields.items() if value is not None}


#: How often a reflector asks whether the queue is still the same, in seconds.
CHECK_SECONDS = 5.0

#: What a source has: its whole list, or changes that are applied together.
Entry = Replace | Change | list[Change]


#: Why an entry was not accepted.
Refusal = Problem | NotJson


def is_about_the_entry(refusal: Refusal) -> bool:
    """Whether a refusal is about the list or the change, so that the next one may be accepted."""
    if isinstance(refusal, NotJson):
        return True
    # The server refuses an object that is nested too deeply with 400.
    return not refusal.is_retryable and (refusal.status in (409, 413, 422) or (refusal.status == 400 and refusal.code == "invalid-json"))


def poll_wait(interval: float) -> float:
    """The wait before the next list, in seconds: within a tenth of the interval, so that many processes spread."""
    return interval * random.uniform(0.9, 1.1)


@dataclass(frozen=True)
class ReplaceOptions:
    """How lists are sent."""

    only_changed: bool = True
    max_delete_percent: int | None = None
    max_deletes: int | None = None
    allow_empty: bool = False


class Sequence:
    """The numbers of a source's calls. An entry keeps its number over all of its repeats."""

    def __init__(self, queue: str, source: str, options: ReplaceOptions) -> None:
        self._queue = queue
        self.source = source
        self._options = options
        # The last number of the source; None: the server has not been asked yet.
        self._last: int | None = None
        self._continue: str | None = None
        # The queue that takes the calls, and when to ask for it next. None: it does not exist yet, or was not asked for.
        self._incarnation: str | None = None
        self._check_at = 0.0

    def check(self, now: float) -> Call[str] | None:
        """The call that asks which queue takes the calls, or None if that was asked a short time ago. `checked` takes the reply."""
        if self._incarnation is not None and now < self._check_at:
            return None
        self._check_at = now + CHECK_SECONDS
        return calls.incarnation(self._queue)

    def checked(self, incarnation: str | None, entry: Entry) -> None:
        """The reply; None: the queue does not exist. A change must not go to another queue than what was sent before; a list may."""
        before, self._incarnation = self._incarnation, incarnation
        if before in (None, incarnation):
            return
        self._last = None
        if not isinstance(entry, Replace):
            raise QueueDeleted(f"the queue {self._queue!r} was deleted, so source {self.source!r} must be listed again")

    def ask(self) -> Call[Page[Json]] | None:
        """The call that asks for the last number, or None if it is known. `found` takes the reply."""
        if self._last is not None:
            return None
        return calls.sources(self._queue, limit=5000, continue_=self._continue)

    def found(self, page: Page[Json] | None) -> None:
        """None: the queue does not exist yet."""
        if page is None:
            self._last, self._continue = 0, None
            return
        numbers = [item["sequence"] for item in page.items if item["source"] == self.source]
        self._continue = page.continue_
        if numbers or page.continue_ is None:
            self._last, self._continue = (numbers[0] if numbers else None) or 0, None

    def call(self, entry: Entry) -> Call[Produced]:
        """The call of an entry. `is_applied` takes the reply."""
        assert self._last is not None
        number = self._last + 1
        if isinstance(entry, Replace):
            options = self._options
            return calls.replace(
                self._queue,
                entry.objects,
                source=self.source,
                sequence=number,
                only_changed=options.only_changed,
                max_delete_percent=options.max_delete_percent,
                max_deletes=options.max_deletes,
                allow_empty=options.allow_empty,
            )
        changes = entry if isinstance(entry, list) else [entry]
        return calls.deltas(self._queue, [change.delta() for change in changes], source=self.source, sequence=number)

    def is_applied(self, reply: Produced, failures: int) -> bool:
        """Whether the entry was applied. If not, another process has used its number: the last number is asked for again, and the entry is sent again."""
        assert self._last is not None
        if reply.duplicate and failures == 0:
            self._last = None
            return False
        self._last += 1
        return True
