"""How a handler ends the lease of its key. A handler may return an outcome or raise it. No I/O except the log."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .durations import Duration, HoldScope, delay_text, hold_of
from .json import Json
from .models import Item

log = logging.getLogger("deltaq")

#: Maximum length of an error text, in bytes of UTF-8, which is that of the server. Only the end of a longer text is sent, because the end says more.
ERROR_BYTES_MAX = 4096
#: The error of a key whose handler has returned Done, although its queue is not of mode keys.
DONE_ELSEWHERE = "Done is only for queues of mode keys, and this queue has another mode"


class Outcome(Exception):
    """The base of all outcomes. It is an exception so that a handler can also raise it."""

    how = ""

    def __init__(self, *, delay: Duration | None = None, floor: bool = False, error: object = None, hold: dict[str, str] | None = None) -> None:
        self.delay = None if delay is None else delay_text(delay)
        self.floor = floor
        self.hold = hold
        self.error = None if error is None else error_text(error)
        super().__init__(self.error or self.how)

    def settle(self, lease_id: str) -> Json:
        """The entry of a settle."""
        entry: Json = {"lease_id": lease_id, "as": self.how}
        if self.delay is not None:
            entry["delay"] = self.delay
        if self.floor:
            entry["floor"] = True
        if self.hold is not None:
            entry["hold"] = self.hold
        if self.error is not None:
            entry["error"] = self.error
        return entry


class Ack(Outcome):
    """The work is done. The same as returning None. With `hold`, nothing of the queue, or with `hold_scope="group"` of the group of the key, is delivered for
    that time, at most an hour, because the target asks for it."""

    how = "ack"

    def __init__(self, *, hold: Duration | None = None, hold_scope: HoldScope = "queue") -> None:
        super().__init__(hold=hold_of(hold, hold_scope))


class Nack(Outcome):
    """The work has failed: the key is delivered again after `delay` or, without it, after its backoff. With `floor`, a change does not shorten this wait.
    `error` is a text or an exception."""

    how = "nack"

    def __init__(self, error: object = None, *, delay: Duration | None = None, floor: bool = False) -> None:
        super().__init__(delay=delay, floor=floor, error=error)


class Reject(Outcome):
    """The work will never succeed: the key is parked, unless a newer change waits. `error` is a text or an exception."""

    how = "reject"

    def __init__(self, error: object = None) -> None:
        super().__init__(error=error)


class Done(Outcome):
    """Mode `keys`: the work is done, and the failure count is kept. With `delay`, the key is added again after that time. In other modes, it is a failure."""

    how = "done"

    def __init__(self, *, delay: Duration | None = None) -> None:
        super().__init__(delay=delay)


class Release(Outcome):
    """The key was not worked on: it is delivered again at once, without a failure. With `hold`, nothing of the queue, or of the `hold_scope` "group" or
    "key", is delivered for that time, at most an hour, because the target asks for it."""

    how = "release"

    def __init__(self, *, hold: Duration | None = None, hold_scope: HoldScope = "queue") -> None:
        super().__init__(hold=hold_of(hold, hold_scope))


def error_text(error: object, text_of: Callable[[object], str] = str) -> str:
    """The text of an error, in a form that the server accepts. Even if `text_of` raises an exception, there is a text."""
    try:
        text = text_of(error)
    except Exception as failure:
        text = f"{type(failure).__name__} while the text of the error was made"
    # The name of a file that is not UTF-8 contains lone surrogates, which UTF-8 can't encode.
    return text.encode("utf-8", "replace")[-ERROR_BYTES_MAX:].decode("utf-8", "ignore")


def outcome_of(result: object, item: Item) -> Outcome:
    """The outcome that a handler has returned or raised: None is an Ack, any other exception a Nack with its message."""
    if result is None:
        return Ack()
    if isinstance(result, Done) and item.deltas:
        # Items of mode keys have no deltas. The server would refuse the settles of other keys in the same call, too.
        return Nack(DONE_ELSEWHERE)
    if isinstance(result, Outcome):
        return result
    if isinstance(result, BaseException):
        return Nack(f"{type(result).__name__}: {error_text(result)}")
    return Nack(f"the handler returned {error_text(result, repr)}: it must return None, Ack, Nack, Reject, Done or Release")


def log_failure(result: object, item: Item, queue: str) -> None:
    """Logs what a handler has returned or raised, if that is a failure that the handler has not chosen itself. `SystemExit` and `KeyboardInterrupt` end the
    worker, which raises them."""
    outcome = outcome_of(result, item)
    if outcome is result or isinstance(outcome, Ack) or isinstance(result, (SystemExit, KeyboardInterrupt)):
        return
    failure = result if isinstance(result, BaseException) and not isinstance(result, Outcome) else None
    log.warning("the handler failed: key %r, queue %s, attempt %d: %s", item.key, queue, item.attempt, outcome.error, exc_info=failure)
