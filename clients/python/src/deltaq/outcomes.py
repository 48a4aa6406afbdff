"""How a handler ends the lease of its key. A handler may return an outcome or raise it."""

from __future__ import annotations

from .durations import Duration, duration_text
from .json import Json

#: The longest error text that is sent, in characters. The beginning of a longer one is cut off: the end of a message says more.
ERROR_LENGTH_MAX = 1000


class Outcome(Exception):
    """The base of all outcomes. It is an exception so that a handler can also raise it."""

    how = ""

    def __init__(self, *, delay: Duration | None = None, error: str | None = None) -> None:
        super().__init__(error or self.how)
        self.delay = delay
        self.error = error

    def settle(self, lease_id: str) -> Json:
        """The entry of a settle."""
        entry: Json = {"lease_id": lease_id, "as": self.how}
        if self.delay is not None:
            entry["delay"] = duration_text(self.delay)
        if self.error is not None:
            entry["error"] = self.error[-ERROR_LENGTH_MAX:]
        return entry


class Ack(Outcome):
    """The work is done. The same as returning None."""

    how = "ack"

    def __init__(self) -> None:
        super().__init__()


class Nack(Outcome):
    """The work has failed: the key is delivered again after `delay`, or after the backoff of its queue."""

    how = "nack"

    def __init__(self, error: str | None = None, *, delay: Duration | None = None) -> None:
        super().__init__(delay=delay, error=error)


class Reject(Outcome):
    """The work will never succeed: the key is parked."""

    how = "reject"

    def __init__(self, error: str | None = None) -> None:
        super().__init__(error=error)


class Done(Outcome):
    """Mode `keys`: the work is done, and failures stay. With `delay`, the key is added again after it."""

    how = "done"

    def __init__(self, *, delay: Duration | None = None) -> None:
        super().__init__(delay=delay)


class Release(Outcome):
    """The key was not worked on: it is delivered again at once, without a failure."""

    how = "release"

    def __init__(self) -> None:
        super().__init__()


def outcome_of(result: object) -> Outcome:
    """The outcome that a handler has returned or raised: None is an Ack, any other exception a Nack with its message."""
    if result is None:
        return Ack()
    if isinstance(result, Outcome):
        return result
    if isinstance(result, BaseException):
        return Nack(f"{type(result).__name__}: {result}")
    return Nack(f"the handler returned {result!r}: it must return None, Ack, Nack, Reject, Done or Release")
