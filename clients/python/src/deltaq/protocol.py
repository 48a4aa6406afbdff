"""How replies become results or errors. No input or output."""

from __future__ import annotations

from typing import TypeVar

from .calls import Call
from .errors import BadReply, Problem
from .json import Codec

T = TypeVar("T")


def read_reply(codec: Codec, call: Call[T], status: int, retry_after: str | None, body: bytes) -> T:
    """The result of a call, or the problem as an error."""
    if status >= 300:
        problem = read_problem(codec, status, retry_after, body)
        if problem.code is None or problem.code != call.read_problem:
            raise problem
        fields: object = problem.fields
    else:
        fields = codec.load(body) if body else None
    try:
        return call.read(fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadReply(f"the reply to {call.method} {call.target} is not as the API says: {error!r}", is_json=bool(body)) from error


def read_problem(codec: Codec, status: int, retry_after: str | None, body: bytes) -> Problem:
    """The problem of a reply that is none of success; other bodies than problem documents count as empty."""
    try:
        fields = codec.load(body)
    except BadReply:
        fields = {}
    if not isinstance(fields, dict):
        fields = {}
    milliseconds = fields.get("retry_after_ms")
    seconds = None
    if isinstance(milliseconds, int):
        # A larger int can't become a float.
        seconds = min(milliseconds, 10**15) / 1000
    elif retry_after is not None and retry_after.isdecimal():
        seconds = float(retry_after)
    return Problem(status, fields, seconds)
