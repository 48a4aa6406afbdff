"""When a call is repeated, and after which wait. Both clients, with threads and for asyncio, use these rules. No I/O."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import BadReply, Cancelled, ConnectionLost, Error, Problem, TokenError

#: Maximum wait that the client grants to a server, in seconds. Python can't wait for arbitrarily long times.
ASKED_SECONDS_MAX = 86400.0


#: Maximum wait while a queue moves to another node (`not-owner`), in seconds. A move takes seconds and is no overload.
MOVING_SECONDS_MAX = 1.0
#: Maximum number of replies in a row that are JSON and can't be read.
UNREADABLE_MAX = 8


@dataclass(frozen=True)
class RetryOptions:
    """Exponential backoff with full jitter: a random wait between 0 and the backoff, in addition to the wait that the server asks for."""

    #: Maximum number of attempts, including the first. None: only `total` limits them.
    attempts: int | None = None
    #: Maximum of the first wait, in seconds. The maximum doubles with each attempt.
    first: float = 0.25
    #: Maximum wait, in seconds, not counting a Retry-After, which is obeyed up to a day.
    max: float = 10.0
    #: No further attempt begins later than this many seconds after the first one.
    total: float = 120.0
    #: A random number from 0 to 1. Tests replace it.
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if (self.attempts is not None and self.attempts < 1) or self.first <= 0 or self.max < self.first:
            raise ValueError("RetryOptions need attempts >= 1 and 0 < first <= max")

    def backoff(self, failures: int, at_most: float = math.inf) -> float:
        """The wait after this many failures in a row, in seconds."""
        # The exponent is limited so that the float can't overflow. 2^32 times the first wait is above any sensible maximum.
        return min(self.max, at_most, self.first * 2.0 ** min(failures - 1, 32)) * self.random()


class Attempts:
    """The attempts of one call. With `for_ever` neither their number nor their time is limited, and they continue after defects of the server too. The
    exception is JSON that can't be read: after `attempts` such replies in a row, or 8, the call has failed."""

    def __init__(self, policy: RetryOptions, *, for_ever: bool = False) -> None:
        self.failures = 0
        self._unreadable = 0
        self._began_at = time.monotonic()
        self._policy = policy
        self._for_ever = for_ever
        #: The error of the last attempt that has failed.
        self.last_error: Error | None = None
        # Whether an attempt has neither a reply nor an error yet, and whether an earlier one may have reached a server.
        self._is_under_way = False
        self._was_sent = False

    def begins(self) -> None:
        """An attempt begins."""
        self._is_under_way = True

    @property
    def is_unsent(self) -> bool:
        """Whether every attempt has failed before anything was sent."""
        return self.last_error is not None and not self._was_sent and not self._is_under_way

    @property
    def limit(self) -> str:
        """For how long a call is repeated, as the end of a sentence; empty without a limit."""
        if self._for_ever:
            return ""
        times = "" if self._policy.attempts is None else f", at most {self._policy.attempts - 1} times"
        return f" for up to {self._policy.total:g} s{times}"

    def wait_after(self, error: Error) -> float | None:
        """The wait before the next attempt, in seconds; None if the call has failed."""
        self.failures += 1
        if isinstance(error, Cancelled):
            return None
        self.last_error, self._is_under_way = error, False
        self._was_sent = self._was_sent or not (isinstance(error, TokenError) or (isinstance(error, ConnectionLost) and not error.was_sent))
        self._unreadable = self._unreadable + 1 if isinstance(error, BadReply) and error.is_json else 0
        limit = self._policy.attempts
        if self._for_ever:
            may_repeat = error.is_temporary and self._unreadable < (limit or UNREADABLE_MAX)
        else:
            may_repeat = error.is_retryable and (limit is None or self.failures < limit)
        if not may_repeat:
            return None
        problem = error if isinstance(error, Problem) else None
        is_moving = problem is not None and problem.code == "not-owner"
        wait = self._policy.backoff(self.failures, MOVING_SECONDS_MAX if is_moving else math.inf)
        if problem is not None and problem.retry_after is not None:
            wait += min(max(problem.retry_after, 0.0), ASKED_SECONDS_MAX)
        if not self._for_ever and time.monotonic() - self._began_at + wait > self._policy.total:
            return None
        return wait
