"""Errors of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The statuses of retryable replies without a problem document. Such a reply comes from a proxy.
RETRYABLE_STATUSES = (408, 429, 502, 503, 504)
#: Problem codes with a status of 500 or more that guarantee that nothing was applied.
KNOWN_OUTCOMES = ("draining", "recovering", "too-many-connections", "journal-behind", "index-building")


class Error(Exception):
    """The base of all errors of this package."""

    @property
    def is_retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return False

    @property
    def is_temporary(self) -> bool:
        """Whether an endless loop, such as that of a worker, continues: the error is retryable, or a defect of the server or of a proxy."""
        return self.is_retryable

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether the call may have been applied."""
        return False


class ConnectionLost(Error):
    """There was no reply: the outcome of the call is unknown, unless there was no connection (`was_sent` is False)."""

    def __init__(self, message: str = "", *, was_sent: bool = True, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.was_sent = was_sent
        #: Whether the next attempt would fail for the same reason, such as a certificate that can't be verified. Only workers, informers and reflectors go on.
        self.is_lasting = is_lasting

    @property
    def is_retryable(self) -> bool:
        return not self.is_lasting

    @property
    def is_temporary(self) -> bool:
        return True

    @property
    def is_outcome_unknown(self) -> bool:
        return self.was_sent


class Cancelled(Error):
    """The call was cancelled because its worker or informer stops."""


class BadReply(Error):
    """The reply is not from deltaq, or can't be read."""

    def __init__(self, message: str = "", *, is_json: bool = False) -> None:
        super().__init__(message)
        #: Whether the reply is JSON. An endless loop repeats such a call only a few times, because the reply may be the same each time.
        self.is_json = is_json

    @property
    def is_temporary(self) -> bool:
        return True

    @property
    def is_outcome_unknown(self) -> bool:
        return True


class TokenError(Error):
    """The `token_source` of a client has raised an exception, so nothing was sent. Workers, informers and reflectors ask it again."""

    @property
    def is_temporary(self) -> bool:
        return True


class NotJson(Error, ValueError):
    """An object can't be written as JSON, so it was not sent."""


class QueueDeleted(Error):
    """The queue of a reflector was deleted, and possibly created again. The new queue lacks the objects that were sent before, so the source must be
    listed again."""


class QueueRestored(QueueDeleted):
    """The queue of a reflector may have lost changes, for example because a backup was restored, or the token does not permit the check. The source must
    be listed again."""


class LeaseLost(Error):
    """The lease of a handler has ended: another worker may hold the key. `Context.raise_if_lost` raises this error."""


class Problem(Error):
    """A refusal of the server: a problem document (RFC 9457), or a status without one."""

    def __init__(self, status: int, fields: Mapping[str, Any], retry_after: float | None = None) -> None:
        #: The HTTP status.
        self.status = status
        #: All fields of the problem document; empty if the reply had none.
        self.fields = dict(fields)
        #: Seconds after which the call may be repeated, if the server says so.
        self.retry_after = retry_after
        super().__init__(f"{status}{f' {self.code}' if self.code else ''}: {self.detail}" + (f"; {self.hint}" if self.hint else ""))

    @property
    def code(self) -> str | None:
        """The kind of the problem, such as `queue-full`."""
        code = self.fields.get("code")
        return code if isinstance(code, str) else None

    @property
    def detail(self) -> str:
        return str(self.fields.get("detail") or self.fields.get("title") or "the reply is not from deltaq: check the address, and whether it begins with https")

    @property
    def hint(self) -> str | None:
        """What to do, such as `did you mean "wait"?`, if it is known. Parameters of the API that have another name here are named as here."""
        hint = self.fields.get("hint")
        if isinstance(hint, str):
            return hint.replace("duplicates=last", "keep_last=True")
        return "a token is sent by Client(token=...)" if self.code == "unauthorized" else None

    @property
    def request_id(self) -> str | None:
        request_id = self.fields.get("request_id")
        return request_id if isinstance(request_id, str) else None

    @property
    def is_retryable(self) -> bool:
        retryable = self.fields.get("retryable")
        if isinstance(retryable, bool):
            return retryable
        return self.status in RETRYABLE_STATUSES

    @property
    def is_temporary(self) -> bool:
        return self.is_retryable or self.status >= 500

    @property
    def is_outcome_unknown(self) -> bool:
        return self.status >= 500 and self.code not in KNOWN_OUTCOMES
