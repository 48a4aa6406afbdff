"""Pauses a worker whose keys fail. No I/O and no clock.

When different keys fail in a row, the target of the handlers is probably down, and the keys are fine. The worker then takes no keys for a time, and
tries one key after that. A nack is a failure; ack, done and reject are successes; a release is neither. Failures of one key count once.
The methods are not thread-safe; a worker calls them under its lock.
"""

from __future__ import annotations

#: The pauses, in seconds: they double with each key that fails after a pause.
FIRST_SECONDS = 1.0
SECONDS_MAX = 60.0
#: The largest number of failures in a row: their keys are remembered.
LIMIT_MAX = 1000


class Breaker:
    """The state of one worker. With the limit None, nothing pauses the worker."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        #: The failures since the last success.
        self.failures = 0
        #: The present pause, in seconds; 0 while the worker is not paused.
        self.pause = 0.0
        # The keys that have failed since the last success. There are fewer than the limit, and none during a pause.
        self._keys: set[str] = set()
        # When one key may be tried; None while its handler runs.
        self._until: float | None = None
        # The lease of the key that is tried.
        self._probe: str | None = None

    def room(self, now: float) -> int | None:
        """How many handlers may begin; None for any number."""
        if not self.pause:
            return None
        return int(self._until is not None and now >= self._until)

    def wait(self, now: float) -> float | None:
        """How long until a key may be tried, in seconds; None if the worker does not wait for that."""
        if not self.pause or self._until is None or self._until <= now:
            return None
        return self._until - now

    def started(self, lease_id: str) -> None:
        """A handler has begun, for which there was room."""
        if self.pause:
            self._probe, self._until = lease_id, None

    def ended(self, now: float, lease_id: str, key: str, how: str) -> str | None:
        """A handler has ended; a lost lease counts as a release. Returns "pauses" if a pause begins, and "goes on" if the worker does."""
        is_probe = self.pause > 0
        # The handlers that began before the pause don't end it.
        if self._limit is None or (is_probe and lease_id != self._probe):
            return None
        if how == "release":
            if is_probe:
                self._pause_for(now, self.pause)
            return None
        if how != "nack":
            self.failures, self.pause, self._probe = 0, 0.0, None
            self._keys.clear()
            return "goes on" if is_probe else None
        self.failures += 1
        self._keys.add(key)
        if not is_probe and len(self._keys) < self._limit:
            return None
        self._pause_for(now, min(max(2 * self.pause, FIRST_SECONDS), SECONDS_MAX))
        return "pauses"

    def _pause_for(self, now: float, seconds: float) -> None:
        self._keys.clear()
        self.pause, self._until, self._probe = seconds, now + seconds, None
