"""Turns replies into results or errors. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from .calls import Call
from .errors import BadReply, Problem
from .json import Codec

T = TypeVar("T")

#: The problems of a server that refuses every call for a reason of its own.
UNDONE_HERE = ("draining", "host-not-allowed", "too-many-connections", "unauthorized")


@dataclass(frozen=True)
class Reply:
    """The status, the relevant headers and the whole body of a reply."""

    status: int
    body: bytes
    retry_after: str | None = None
    etag: str | None = None

    @classmethod
    def of(cls, status: int, header: Callable[[str], str | None], body: bytes) -> Reply:
        return cls(status, body, header("retry-after"), header("etag"))


def read_reply(codec: Codec, call: Call[T], reply: Reply) -> T:
    """Returns the result of a call, or raises the problem."""
    body = reply.body
    if reply.status >= 300:
        problem = read_problem(codec, reply)
        if problem.code is None or problem.code != call.read_problem:
            raise problem
        fields: object = problem.fields
    else:
        fields = codec.load(body) if body else None
    try:
        return call.read((fields, reply.etag or "") if call.is_tagged else fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadReply(f"the reply to {call.label} does not match the API: {error!r}", is_json=bool(body)) from error


def read_problem(codec: Codec, reply: Reply) -> Problem:
    """The problem of a reply whose status is not a success. A body that is not a problem document counts as empty."""
    try:
        fields = codec.load(reply.body)
    except BadReply:
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    milliseconds = fields.get("retry_after_ms")
    seconds = None
    if isinstance(milliseconds, int):
        # A larger int can't become a float.
        seconds = min(milliseconds, 10**15) / 1000
    elif reply.retry_after is not None and reply.retry_after.isdecimal():
        seconds = float(reply.retry_after)
    return Problem(reply.status, fields, seconds)


def is_undone_here(reply: Reply) -> bool:
    """Whether the server has done nothing, for a reason that another one need not have: it stops, refuses every call, or is no deltaq server."""
    if not 300 <= reply.status <= 503:
        return False
    problem = read_problem(Codec(), reply)
    if problem.code is None:
        return problem.status < 500 and not problem.is_retryable
    return problem.code in UNDONE_HERE
