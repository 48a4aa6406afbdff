"""Errors of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Error(Exception):
    """The base of all errors of this package."""

    @property
    def is_retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return False


class ConnectionLost(Error):
    """There was no reply: the outcome of the call is unknown."""

    @property
    def is_retryable(self) -> bool:
        return True


class Cancelled(Error):
    """The call was given up because its worker or informer stops."""


class BadReply(Error):
    """The server sent something that is not deltaq's API."""


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
        super().__init__(f"{status} {self.code or ''}: {self.detail}")

    @property
    def code(self) -> str | None:
        """The kind of the problem, such as `queue-full`."""
        code = self.fields.get("code")
        return code if isinstance(code, str) else None

    @property
    def detail(self) -> str:
        return str(self.fields.get("detail") or self.fields.get("title") or "the reply is no problem document")

    @property
    def request_id(self) -> str | None:
        request_id = self.fields.get("request_id")
        return request_id if isinstance(request_id, str) else None

    @property
    def is_retryable(self) -> bool:
        retryable = self.fields.get("retryable")
        if isinstance(retryable, bool):
            return retryable
        # A reply of a proxy in between.
        return self.status in (408, 429) or self.status >= 500
