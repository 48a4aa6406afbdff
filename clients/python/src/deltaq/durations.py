"""Durations as the API writes them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

#: A number of seconds, a timedelta, or text such as `1m30s`.
Duration = float | timedelta | str
#: What a hold concerns: the queue, the group of a key, or the key, if it is released.
HoldScope = Literal["queue", "group", "key"]

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: The longest delay of a key, in seconds.
DELAY_SECONDS_MAX = 366 * UNITS["d"]
PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)")


def duration_text(duration: Duration) -> str:
    """The text of a duration for the API. Text is checked by the server."""
    if isinstance(duration, str):
        return duration
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration must not be negative or infinite, and this one is {seconds:g} s")
    return f"{round(seconds * 1e6)}us"


def hold_of(length: Duration | None, scope: HoldScope) -> dict[str, str] | None:
    """A hold. The server cuts a hold to an hour."""
    return None if length is None else {"scope": scope, "for": duration_text(length)}


def delay_text(delay: Duration) -> str:
    """The text of a key's delay. Raises a ValueError for a delay that the server would refuse."""
    if duration_seconds(delay) > DELAY_SECONDS_MAX:
        raise ValueError(f"a delay may have 366 days, and this one is {delay}")
    return duration_text(delay)


def duration_seconds(duration: Duration) -> float:
    """The seconds of a duration."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, (int, float)):
        return float(duration)
    if not isinstance(duration, str):
        raise TypeError(f"{duration!r} is not a duration: write a number of seconds, or a text such as 30s or 1m30s")
    parts = PART.findall(duration)
    if not parts or "".join(number + unit for number, unit in parts) != duration:
        raise ValueError(f"{duration!r} is not a duration: write a number and a unit, such as 30s or 1m30s")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def head_start_text(head_start: Duration) -> str:
    """The text of a head start for the API, which may be negative. Text is checked by the server."""
    if isinstance(head_start, str):
        return head_start
    seconds = duration_seconds(head_start)
    return f"-{duration_text(-seconds)}" if seconds < 0 else duration_text(seconds)


def waits_text(delay: Duration | None, debounce: Duration | None, max_wait: Duration | None, head_start: Duration | None) -> dict[str, str | None]:
    """The waits and the head start of a produce call as query parameters."""
    waits = {"delay": delay, "debounce": debounce, "max_wait": max_wait}
    texts = {name: None if wait is None else duration_text(wait) for name, wait in waits.items()}
    return {**texts, "head_start": None if head_start is None else head_start_text(head_start)}
