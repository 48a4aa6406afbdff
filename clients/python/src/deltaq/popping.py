"""The pops of a worker: their settings, and what their refusals mean. No I/O except the log."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from . import calls
from .breaker import LIMIT_MAX
from .calls import Call
from .durations import Duration, duration_seconds
from .errors import Problem
from .json import Json
from .models import Popped, Settled
from .retry import RetryOptions

log = logging.getLogger("deltaq")

#: Maximum number of keys in one pop.
POP_MAX = 1000
#: How long the last calls of a stopping worker may take, in seconds.
LAST_CALLS_SECONDS = 5.0
#: What is logged if a worker stops and its last pop got no reply: the queue, and the last error.
NO_LAST_POP = "the last pop of queue %s got no reply; keys that it has leased are delivered again when their leases expire: %s"
#: The last error of a pop without one.
SILENT = "the server was silent"
#: The waits for a queue that does not exist: 1 s, doubling to 15 s.
ABSENT = RetryOptions(first=1.0, max=15.0, random=lambda: 1.0)


@dataclass(frozen=True)
class WorkerSettings:
    """The settings of a worker."""

    name: str | None
    concurrency: int
    batch: int | None
    lease_duration: Duration | None
    with_known: bool
    with_diff: bool
    wait: Duration
    grace: float
    breaker: int | None = None
    group: str | None = None
    last_calls_seconds: float = LAST_CALLS_SECONDS

    def __post_init__(self) -> None:
        if isinstance(self.concurrency, bool) or not isinstance(self.concurrency, int):
            raise TypeError(f"concurrency must be a whole number, and it is {self.concurrency!r}")
        if self.concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, and it is {self.concurrency}")
        if self.lease_duration is not None and _seconds("lease_duration", self.lease_duration) <= 0:
            raise ValueError(f"lease_duration must be more than 0, and it is {self.lease_duration}")
        if _seconds("wait", self.wait) < 0:
            raise ValueError(f"wait must not be negative, and it is {self.wait}")
        if not isinstance(self.grace, (int, float)):
            raise TypeError(f"grace must be a number of seconds, and it is {self.grace!r}")
        if self.batch is not None and not 1 <= self.batch <= POP_MAX:
            raise ValueError(f"batch must be from 1 to {POP_MAX}, and it is {self.batch}")
        if self.breaker is not None and not 1 <= self.breaker <= LIMIT_MAX:
            raise ValueError(f"breaker must be from 1 to {LIMIT_MAX}, and it is {self.breaker}")
        if self.name is None:
            name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
            object.__setattr__(self, "name", name)

    def pop(self, queue: str, pop_id: str, settle: Sequence[Json], *, wait: Duration | None = None, max: int | None = None) -> Call[Popped]:
        """The call of a pop. Repeats of it have the same id. `wait` and `max` replace those of the worker."""
        if max is None:
            max = min(self.concurrency, POP_MAX) if self.batch is None else self.batch
        return calls.pop(
            queue,
            wait=self.wait if wait is None else wait,
            max=max,
            lease_duration=self.lease_duration,
            worker=self.name,
            id=pop_id,
            group=self.group,
            with_known=self.with_known,
            with_diff=self.with_diff,
            settle=settle,
        )


def _seconds(name: str, duration: Duration) -> float:
    try:
        return duration_seconds(duration)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


class Absence:
    """Counts the pops of a queue that does not exist yet."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._pops = 0

    def wait(self) -> float:
        """The wait before the next pop, in seconds. The first wait is logged."""
        self._pops += 1
        if self._pops == 1:
            log.warning("queue %s does not exist yet", self._queue)
        return ABSENT.backoff(self._pops)


def settled_of(problem: Problem) -> list[Settled]:
    """The results of the settles of a refused pop."""
    return [Settled.read(settled) for settled in problem.fields.get("settled") or []]
