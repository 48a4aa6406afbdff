"""What an informer does after the end of a watch. No I/O."""

from __future__ import annotations

from .cache import Cache
from .durations import Duration, duration_seconds
from .errors import Error, Problem
from .retry import Attempts, RetryOptions

#: Interval of the bookmarks of a watch, in seconds, if the watch does not set it.
BOOKMARK_SECONDS = 15.0
#: A watch that receives nothing for this many bookmark intervals counts as lost.
SILENT_BOOKMARKS = 2.5


def silence_seconds(bookmark: Duration | None) -> float:
    """How long a watch with this bookmark interval may be silent, in seconds."""
    return SILENT_BOOKMARKS * (BOOKMARK_SECONDS if bookmark is None else duration_seconds(bookmark))


class Watching:
    """Decides when the next watch begins."""

    def __init__(self, cache: Cache, policy: RetryOptions) -> None:
        self._cache = cache
        self._policy = policy
        self._attempts = Attempts(policy, for_ever=True)
        self._has_rows = False
        # The version of the store at the end of the last watch.
        self._version = cache.version

    def received(self) -> None:
        """A row has arrived."""
        if not self._has_rows:
            self._has_rows = True
            self._attempts.failures = 0

    def wait_after(self, error: Error | None) -> float | None:
        """The wait before the next watch, in seconds, after an error or the end of a stream; None if the error is final."""
        self._has_rows = False
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
            return self._policy.backoff(self._count())
        return self._attempts.wait_after(error)

    def _count(self) -> int:
        self._attempts.failures += 1
        return self._attempts.failures
