"""What a reflector sends: the lists and changes of a source, each with a sequence number. No input or output."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from . import calls
from .arguments import kind
from .calls import Call
from .errors import NotJson, Problem, QueueDeleted, QueueRestored
from .json import Json
from .models import Place, Produced

T = TypeVar("T")

#: A generator of calls, which its caller makes one after the other. The caller sends each reply into it, or throws the problem.
Steps = Generator[Call[Any], Any, T]


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


#: Interval at which a reflector checks that the queue still has the objects that were sent, in seconds.
CHECK_SECONDS = 5.0

#: An entry of a source: its whole list, or changes that are applied together. More changes than a call takes are sent in several calls.
Entry = Replace | Change | list[Change]

#: Number of changes in a call; `queues.max_batch` of a server may be smaller.
CHANGES_MAX = 10_000


#: Why an entry was not accepted.
Refusal = Problem | NotJson


def check_entry(entry: object) -> None:
    """Raises a TypeError unless a source may yield this."""
    if isinstance(entry, (Replace, Change)) or (isinstance(entry, list) and all(isinstance(change, Change) for change in entry)):
        return
    raise TypeError(f"the entry of a source is a {kind(entry)}: expected Replace or Change, such as Replace([...]) for a whole list, or a list of Change")


def is_about_the_entry(refusal: Refusal) -> bool:
    """Whether a refusal is about the list or the change, so that the next one may be accepted."""
    if isinstance(refusal, NotJson):
        return True
    # The server refuses an object that is nested too deeply with 400.
    return not refusal.is_retryable and (refusal.status in (409, 413, 422) or (refusal.status == 400 and refusal.code == "invalid-json"))


def poll_wait(interval: float) -> float:
    """The wait before the next list, in seconds: the interval plus or minus up to a tenth at random, so that many processes do not list at once."""
    return interval * random.uniform(0.9, 1.1)


@dataclass(frozen=True)
class ReplaceOptions:
    """How lists are sent."""

    only_changed: bool = True
    max_delete_percent: int | None = None
    max_deletes: int | None = None
    allow_empty: bool = False
    skip_invalid: bool = True


def left_out(queue: str, source: str, reply: Produced) -> Iterator[str]:
    """What to log of the objects that a call has left out."""
    for row in reply.invalid_objects:
        key, code, detail = row["key"], row["code"], row["detail"]
        yield f"source {source!r}: queue {queue!r} refuses an object, which is left out; its key {key!r} keeps what it has: {code}: {detail}"
    more = reply.invalid - len(reply.invalid_objects)
    if more > 0:
        yield f"source {source!r}: queue {queue!r} refuses {more} more objects, which are left out"


class Parts:
    """The parts of an entry, each for one call, and their replies."""

    def __init__(self, entry: Entry) -> None:
        self._waiting = [entry]
        if isinstance(entry, list) and len(entry) > CHANGES_MAX:
            self._waiting = [entry[at : at + CHANGES_MAX] for at in range(0, len(entry), CHANGES_MAX)]
        self._replies: list[Produced] = []
        self._refusal: Refusal | None = None
        self._passed = 0

    def __iter__(self) -> Iterator[Entry]:
        while self._waiting:
            yield self._waiting.pop(0)

    def accepted(self, part: Entry, reply: Produced) -> None:
        rows = [{**row, "index": row["index"] + self._passed} for row in reply.invalid_objects]
        self._replies.append(replace(reply, invalid_objects=rows))
        self._passed += len(part) if isinstance(part, list) else 1

    def refused(self, part: Entry, refusal: Refusal) -> None:
        """A part that is too large is sent in two halves. After any other refusal of a part, the other parts are still sent."""
        if isinstance(part, list) and len(part) > 1 and isinstance(refusal, Problem) and refusal.status == 413:
            middle = len(part) // 2
            self._waiting[:0] = [part[:middle], part[middle:]]
            return
        if not is_about_the_entry(refusal):
            raise refusal
        self._refusal = self._refusal or refusal
        self._passed += len(part) if isinstance(part, list) else 1

    def reply(self) -> Produced:
        """The reply to the whole entry. Raises the first refusal."""
        if self._refusal is not None:
            raise self._refusal
        if len(self._replies) == 1:
            return self._replies[0]
        counts = {name: sum(getattr(reply, name) for reply in self._replies) for name in ("queued", "merged", "ignored", "stale", "invalid")}
        rows = [row for reply in self._replies for row in reply.invalid_objects]
        return replace(self._replies[-1], **counts, invalid_objects=rows[:10])


class Sequence:
    """The sequence numbers of a source's calls. A repeated entry keeps its number."""

    def __init__(self, queue: str, source: str, options: ReplaceOptions) -> None:
        self._queue = queue
        self.source = source
        self._options = options
        # The last number of the source; None until the server was asked, and again from a call until its reply arrives.
        self._last: int | None = None
        # The number of the last call.
        self._called = 0
        # The queue that has the objects that were sent, and the time of the next check. None if the queue does not exist yet or was not checked.
        self._place: Place | None = None
        self._check_at = 0.0
        # The version in the last reply.
        self._version = 0

    def check(self, now: float, entry: Entry | None) -> Steps[None]:
        """Checks that the queue is still the same, unless the last check was a short time ago. The entry is None while the source has nothing new. A change
        must not go to a queue that lacks earlier changes; a list may."""
        if self._place is not None and now < self._check_at:
            return
        self._check_at = now + CHECK_SECONDS
        try:
            place = yield calls.place(self._queue)
        except Problem as problem:
            if problem.code != "queue-not-found":
                raise
            place = None
        yield from self._compare(place, entry, self._last)

    def find_last(self) -> Steps[None]:
        """Asks for the last number of the source, unless it is known."""
        if self._last is None:
            self._last = yield from self._number()

    def call(self, entry: Entry) -> Call[Produced]:
        """The call of an entry. `applied` takes the reply. Without a reply, it is unknown whether the number is used, and the server is asked again. If the
        next call had the same number, and its first attempt got no reply, the reply that the number is used would seem to be about that call."""
        assert self._last is not None
        call = self._call(entry, self._last + 1)
        self._called, self._last = self._last + 1, None
        return call

    def _call(self, entry: Entry, number: int) -> Call[Produced]:
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
                skip_invalid=options.skip_invalid,
            )
        changes = entry if isinstance(entry, list) else [entry]
        deltas = [change.delta() for change in changes]
        return calls.deltas(self._queue, deltas, source=self.source, sequence=number, skip_invalid=self._options.skip_invalid)

    def applied(self, reply: Produced, entry: Entry, failures: int) -> Steps[bool]:
        """Whether the entry was applied. If not, another process has used its number: the entry is sent again, with a number after the current last one."""
        if reply.duplicate and failures == 0:
            return False
        self._last = self._called
        place = Place.of(reply)
        if place is not None:
            # The last number in the queue is now that of this call, so it says nothing about earlier calls.
            yield from self._compare(place, entry, None)
            self._version = reply.resource_version
        return True

    def _compare(self, place: Place | None, entry: Entry | None, number: int | None) -> Steps[None]:
        """Checks that the queue has the changes that were sent before. If a server has loaded the queue since, the queue is in another life: then it must
        have the version of the last reply, and the number of the last call."""
        before = self._place
        if isinstance(entry, Replace) or before is None:
            # A list is complete, so the earlier content of the queue does not matter. A queue in another life may have another last number.
            if before is not None and number is not None and (place is None or place.life != before.life):
                self._last = None
            self._place = place
            return
        if place is None or place.incarnation != before.incarnation:
            self._adopt(place)
            raise QueueDeleted(f"the queue {self._queue!r} was deleted, so source {self.source!r} must be listed again")
        is_kept = place.resource_version >= self._version
        if is_kept and place.life != before.life:
            is_kept = yield from self._has_version()
            if is_kept and number is not None:
                is_kept = (yield from self._number()) == number
        if not is_kept:
            self._adopt(place)
            raise QueueRestored(f"the queue {self._queue!r} may have lost what source {self.source!r} sent, so it must be listed again")
        self._place = place

    def _adopt(self, place: Place | None) -> None:
        self._place, self._last, self._version = place, None, 0

    def _has_version(self) -> Steps[bool]:
        if self._version == 0:
            return True
        try:
            yield calls.synced(self._queue, resource_version=self._version)
        except Problem as problem:
            # 403: the token does not permit the check.
            if problem.code in ("expired", "version-ahead") or problem.status == 403:
                return False
            raise
        return True

    def _number(self) -> Steps[int]:
        """The last number of the source that the queue has applied."""
        next_page: str | None = None
        while True:
            try:
                page = yield calls.sources(self._queue, limit=5000, continue_=next_page)
            except Problem as problem:
                if problem.code != "queue-not-found":
                    raise
                return 0
            numbers = [item["sequence"] for item in page.items if item["source"] == self.source]
            if numbers or page.continue_ is None:
                return (numbers[0] if numbers else None) or 0
            next_page = page.continue_
