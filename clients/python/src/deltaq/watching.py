"""What an informer does after the end of a watch. No I/O except the log."""

from __future__ import annotations

import logging

from .cache import Cache
from .calls import Call
from .durations import Duration, duration_seconds
from .errors import ConnectionLost, Error, Problem
from .outage import Outage
from .retry import Attempts, RetryOptions

log = logging.getLogger("deltaq")

#: Interval of the bookmarks of a watch, in seconds, if the watch does not set it.
BOOKMARK_SECONDS = 15.0
VIEWS = ("latest", "known")
#: A watch that receives nothing for this many bookmark intervals counts as lost.
SILENT_BOOKMARKS = 2.5


def silence_seconds(bookmark: Duration | None) -> float:
    """How long a watch with this bookmark interval may be silent, in seconds."""
    return SILENT_BOOKMARKS * (BOOKMARK_SECONDS if bookmark is None else duration_seconds(bookmark))


def check_watch(view: str, bookmark: Duration | None) -> None:
    """Raises an error if no server would accept such a watch."""
    if view not in VIEWS:
        raise ValueError(f"the view is {view!r}: it must be one of {', '.join(VIEWS)}")
    if bookmark is not None:
        duration_seconds(bookmark)


class Watching:
    """Decides when the next watch begins."""

    def __init__(self, cache: Cache, policy: RetryOptions, outage: Outage) -> None:
        self._cache = cache
        self._policy = policy
        self._outage = outage
        self._is_absent = False
        self._attempts = Attempts(policy, for_ever=True)
        self._has_rows = False
        # The version of the store at the end of the last watch.
        self._version = cache.version

    def received(self) -> None:
        """A row has arrived."""
        if not self._has_rows:
            self._has_rows, self._is_absent = True, False
            self._attempts.failures = 0

    def wait_after(self, error: Error | None, call: Call[None]) -> float | None:
        """The wait before the next watch, in seconds, after an error or the end of a stream; None if the error is final."""
        had_rows, self._has_rows = self._has_rows, False
        has_progress = self._cache.version != self._version
        if has_progress:
            # Only a new version is progress. Rows alone are not, because a list may have a row that can't be read.
            self._version, self._attempts = self._cache.version, Attempts(self._policy, for_ever=True)
        if error is None:
            # The server ends each stream after some minutes. After one that has brought nothing new, the next one waits: it may end at once, too.
            return 0.0 if has_progress else self._policy.backoff(self._count())
        if isinstance(error, Problem) and error.code in ("expired", "queue-deleted"):
            self._cache.expire()
            return self._policy.backoff(self._count())
        if isinstance(error, Problem) and error.code == "queue-not-found":
            # The queue does not exist yet, so the informer retries until someone creates it.
            if not self._is_absent:
                self._is_absent = True
                log.warning("queue %s does not exist yet", call.queue)
            return self._policy.backoff(self._count())
        wait = self._attempts.wait_after(error)
        # A stream that has worked may end at any time, and the next one begins at once.
        if wait is not None and not (had_rows and isinstance(error, ConnectionLost)):
            self._outage.repeats(error, call, self._attempts)
        return wait

    def _count(self) -> int:
        self._attempts.failures += 1
        return self._attempts.failures
