"""When a call is repeated, and after which wait. Both clients, with threads and for asyncio, use these rules. No I/O except the log."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from .errors import BadReply, Error, Problem

log = logging.getLogger("deltaq")

#: Maximum wait that the client grants to a server, in seconds. Python can't wait for arbitrarily long times.
ASKED_SECONDS_MAX = 86400.0


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with full jitter: a random wait between 0 and the backoff, in addition to the wait that the server asks for."""

    #: Maximum number of attempts, including the first.
    max_attempts: int = 8
    #: Maximum of the first wait, in seconds. The maximum doubles with each attempt.
    base: float = 0.1
    #: Maximum wait, in seconds, not counting a Retry-After, which is obeyed up to a day.
    max: float = 10.0
    #: A random number from 0 to 1. Tests replace it.
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        if self.max_attempts < 1 or self.base <= 0 or self.max < self.base:
            raise ValueError("a RetryPolicy needs max_attempts >= 1 and 0 < base <= max")

    def backoff(self, failures: int) -> float:
        """The wait after this many failures in a row, in seconds."""
        # The exponent is limited so that the float can't overflow. 2^32 times the base is above any sensible maximum.
        return min(self.max, self.base * 2.0 ** min(failures - 1, 32)) * self.random()


class Attempts:
    """The attempts of one call. With `for_ever` their number is not limited, and they continue after defects of the server too. The exception is JSON
    that can't be read: after `max_attempts` such replies in a row the call has failed."""

    def __init__(self, policy: RetryPolicy, *, for_ever: bool = False) -> None:
        self.failures = 0
        self._unreadable = 0
        self._policy = policy
        self._for_ever = for_ever

    def wait_after(self, error: Error) -> float | None:
        """The wait before the next attempt, in seconds; None if the call has failed."""
        self.failures += 1
        self._unreadable = self._unreadable + 1 if isinstance(error, BadReply) and error.is_json else 0
        if self._for_ever:
            may_repeat = error.is_temporary and self._unreadable < self._policy.max_attempts
        else:
            may_repeat = error.is_retryable and self.failures < self._policy.max_attempts
        if not may_repeat:
            return None
        if not error.is_retryable:
            log.warning("a defect of the server or of a proxy; the call is repeated: %s", error)
        wait = self._policy.backoff(self.failures)
        if isinstance(error, Problem) and error.retry_after is not None:
            wait += min(max(error.retry_after, 0.0), ASKED_SECONDS_MAX)
        return wait
