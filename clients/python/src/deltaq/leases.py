"""The leases that a worker holds: when to extend them, when they are lost, and which outcomes are to be sent. No I/O except the log, and no clock.

Invariant: a lease is held from `take` until its outcome is settled, or until it is lost. The outcome of a handler whose lease is lost is not
sent. A lease whose handler has ended is never lost: its outcome is sent, and the server says whether the lease had ended. Every method takes the
present time as seconds of a monotonic clock. The methods are not thread-safe; a worker calls them under its lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from .breaker import Breaker
from .errors import LeaseLost
from .json import Json
from .models import Item, Lease, Settled
from .outcomes import Outcome, Release
from .retry import RetryOptions

log = logging.getLogger("deltaq")

#: Maximum number of leases in one settle or extend.
BATCH_MAX = 1000
#: How long an outcome waits for the next pop, which can send it along, in seconds.
SETTLE_AFTER_SECONDS = 0.1
#: Maximum safety margin, in seconds: a lease that could not be extended counts as lost this long before its end.
MARGIN_SECONDS_MAX = 5.0
#: The longest random wait before an extend is repeated, in seconds.
EXTEND_WAIT_SECONDS_MAX = 1.0
#: A time in the far future, in seconds. Locks can't wait for infinity.
FAR = 1e18


class Context:
    """What a handler knows about its lease besides the item."""

    def __init__(self, lease: Lease, queue: str = "") -> None:
        #: The name of the queue.
        self.queue = queue
        #: The lease; `lease.token` is the fencing token.
        self.lease = lease
        #: Number of changes of the key that have arrived during the lease, as of the last extend.
        self.pending_deltas = 0
        #: Whether the newest of these changes is a deletion.
        self.is_deleted = False
        #: Whether the lease has ended: another worker may hold the key. The handler must write nothing more.
        self.is_lost = False
        #: Whether the worker is stopping. The handler may still finish.
        self.is_stopping = False

    @property
    def token(self) -> int:
        """The fencing token: a store that remembers the highest token of a key can refuse a late worker."""
        return self.lease.token

    def raise_if_lost(self) -> None:
        """Raises `LeaseLost` if the lease has ended."""
        if self.is_lost:
            raise LeaseLost(f"the lease {self.lease.id} has ended")


@dataclass(eq=False)
class Held:
    """A lease that the worker holds, with its item."""

    item: Item
    context: Context
    extend_at: float = 0.0
    #: When the lease counts as lost, unless it is extended: some time before the server may give the key to another worker.
    lost_at: float = 0.0
    is_started: bool = False
    #: Called once if the lease is lost.
    on_lost: Callable[[], object] = field(default=lambda: None)

    def begin(self, now: float, length_ms: int) -> None:
        """Starts the time of the lease: it ends `length_ms` after `now`."""
        seconds = length_ms / 1000
        self.extend_at = now + seconds / 3
        self.lost_at = now + seconds - min(MARGIN_SECONDS_MAX, seconds / 6)

    @property
    def id(self) -> str:
        return self.item.lease.id


def extend_policy(policy: RetryOptions) -> RetryOptions:
    """The waits between extends: short ones, so that several attempts fit into a lease."""
    return replace(policy, first=min(policy.first, EXTEND_WAIT_SECONDS_MAX), max=min(policy.max, EXTEND_WAIT_SECONDS_MAX))


class Leases:
    """The leases of a worker of the queue with this name. `breaker` is the number of failures that pause the worker."""

    def __init__(self, queue: str = "", breaker: int | None = None) -> None:
        self._queue = queue
        #: Says how many handlers may begin.
        self.breaker = Breaker(breaker)
        #: The number of running handlers, including handlers whose leases are lost.
        self.running = 0
        # Leases without an outcome; outcomes that wait to be sent, each with the time since when; outcomes that are being sent.
        self._held: dict[str, Held] = {}
        self._outbox: list[tuple[Held, Outcome, float]] = []
        self._sending: dict[str, tuple[Held, Outcome, float]] = {}
        # A failed extend is not repeated before this time.
        self._extend_not_before = 0.0

    # Items.

    def take(self, items: Iterable[Item], now: float) -> list[Held]:
        """Adds the leases of a pop. Those for which a pause has no room are returned to the queue; a pop that began before the pause may have several."""
        taken: list[Held] = []
        room = self.breaker.room(now)
        for item in items:
            held = Held(item, Context(item.lease, self._queue))
            held.begin(now, item.lease.expires_in_ms)
            self._held[held.id] = held
            if room is None or len(taken) < room:
                taken.append(held)
            else:
                self._put(held, Release(), now)
        return taken

    def waiting(self) -> list[Held]:
        """The leases whose handlers have not begun."""
        return [held for held in self._held.values() if not held.is_started]

    def start(self, held: Held) -> bool:
        """Begins the work. Returns False if the lease was lost or released: then the handler must not run."""
        if held.context.is_lost or held.id not in self._held:
            return False
        held.is_started = True
        self.running += 1
        self.breaker.started(held.id)
        return True

    def finish(self, held: Held, outcome: Outcome, now: float) -> None:
        """Ends the work. If a pause begins, the leases whose handlers have not begun are returned: `start` refuses them."""
        self.running -= 1
        self._put(held, outcome, now)
        event = self.breaker.ended(now, held.id, held.item.key, Release.how if held.context.is_lost else outcome.how)
        if event == "pauses":
            self.release_waiting(now)
            pause, failures = self.breaker.pause, self.breaker.failures
            log.warning("the worker pauses for %g s, because keys of queue %s have failed in a row (%d failures): %s", pause, self._queue, failures, outcome)
        elif event == "goes on":
            log.warning("the worker goes on, because a key of queue %s has succeeded", self._queue)

    def release_waiting(self, now: float) -> None:
        """Returns the leases whose handlers have not begun."""
        for held in self.waiting():
            self._put(held, Release(), now)

    def _put(self, held: Held, outcome: Outcome, now: float) -> None:
        if self._held.pop(held.id, None) is not None:
            self._outbox.append((held, outcome, now))

    # Settles.

    @property
    def has_settles(self) -> bool:
        """Whether outcomes wait to be sent, or are being sent."""
        return bool(self._outbox or self._sending)

    def settle_at(self) -> float | None:
        """The time at which the oldest outcome must be sent in a separate call."""
        return self._outbox[0][2] + SETTLE_AFTER_SECONDS if self._outbox else None

    def take_settles(self) -> list[Json]:
        """The outcomes to send. `settled` or `unsettled` ends the attempt."""
        batch, self._outbox = self._outbox[:BATCH_MAX], self._outbox[BATCH_MAX:]
        self._sending.update((entry[0].id, entry) for entry in batch)
        return [outcome.settle(held.id) for held, outcome, _ in batch]

    def settled(self, entries: Sequence[Json], results: Iterable[Settled]) -> list[Settled]:
        """Removes the leases that a call has settled, and logs the keys that it has parked. Returns the results of those that had ended before the call."""
        sent = {entry["lease_id"]: self._sending.pop(entry["lease_id"], None) for entry in entries}
        results = list(results)
        for result in results:
            if result.parked and (entry := sent.get(result.lease_id)) is not None:
                held, outcome, _ = entry
                log.warning("key %r of queue %s is parked after %s failures: %s", held.item.key, self._queue, result.failures, outcome)
        return [result for result in results if result.result == "stale"]

    def unsettled(self, entries: Sequence[Json]) -> None:
        """Puts the outcomes of a call without a reply back into the queue of outcomes to send."""
        self._outbox[:0] = [self._sending.pop(entry["lease_id"]) for entry in entries]

    # Extends.

    def _unsettled(self) -> list[Held]:
        return [*self._held.values(), *(held for held, _, _ in self._outbox), *(held for held, _, _ in self._sending.values())]

    def extend_at(self) -> float | None:
        """The time at which the next lease must be extended."""
        earliest = min((held.extend_at for held in self._unsettled()), default=None)
        return None if earliest is None else max(earliest, self._extend_not_before)

    def take_extends(self, now: float) -> list[str]:
        """The leases to extend now. `extended` or `extend_failed` ends the attempt."""
        return [held.id for held in self._unsettled() if held.extend_at <= now][:BATCH_MAX]

    def extend_patience(self, now: float) -> float:
        """The timeout of an extend, in seconds. It leaves time for a second attempt before the first lease is lost."""
        ends = [held.lost_at for held in self._unsettled() if held.lost_at > now]
        return (min(ends, default=FAR) - now) / 2

    def extended(self, results: Iterable[Settled], sent_at: float) -> None:
        """Processes the reply to an extend that was sent at `sent_at`."""
        by_id = {held.id: held for held in self._unsettled()}
        for result in results:
            held = by_id.get(result.lease_id)
            if held is None:
                continue
            if result.result == "ok":
                held.begin(sent_at, result.expires_in_ms)
                held.context.pending_deltas, held.context.is_deleted = result.pending_deltas, result.deleted
            elif held.id in self._held:
                self._lose(held, "somebody has ended it")
            else:
                held.extend_at = FAR

    def extend_failed(self, now: float, wait: float) -> None:
        """Schedules the next attempt of a failed extend after `wait`."""
        self._extend_not_before = now + wait

    def lost_at(self) -> float | None:
        """The time at which the next lease is lost, unless it is extended."""
        return min((held.lost_at for held in self._held.values()), default=None)

    def expire(self, now: float) -> None:
        """Marks the leases whose time has passed as lost."""
        for held in list(self._held.values()):
            if held.lost_at <= now:
                self._lose(held, "no extend has succeeded in time")

    def _lose(self, held: Held, why: str) -> None:
        log.warning("the lease %s of key %r is lost: %s", held.id, held.item.key, why)
        del self._held[held.id]
        held.context.is_lost = True
        held.on_lost()

    def stop(self) -> None:
        """Tells the running handlers that the worker is stopping."""
        for held in self._held.values():
            held.context.is_stopping = True
