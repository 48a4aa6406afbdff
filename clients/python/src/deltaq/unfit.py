"""What can't be written as JSON in a value, and where it is. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from datetime import date, time
from decimal import Decimal

#: How deep a value is searched.
DEPTH_MAX = 200
#: The longest text of what can't be written.
TEXT_MAX = 100
TOO_DEEP = "the nesting is too deep, or an object contains itself"
#: How to write values of these types.
HINTS: list[tuple[type | tuple[type, ...], str]] = [
    ((date, time), ".isoformat() makes a text of it"),
    (uuid.UUID, "str() makes a text of it"),
    (bytes, ".decode() makes a text of it"),
    ((set, frozenset), "list() makes a list of it"),
]


@dataclass(frozen=True)
class Unfit:
    """What can't be written."""

    what: str
    hint: str = ""
    #: The JSON pointer to it.
    pointer: str = ""

    def __str__(self) -> str:
        what = self.what if len(self.what) <= TEXT_MAX else f"{self.what[:TEXT_MAX]}..."
        return what + (f" at {self.pointer}" if self.pointer else "") + (f"; {self.hint}" if self.hint else "")


def find(value: object, encode: Callable[[object], object], depth: int = 0) -> Unfit | None:
    """The first part of a value that `encode` refuses; None if there is none."""
    children: Iterable[tuple[object, object]]
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, (list, tuple)):
        children = enumerate(value)
    else:
        return _refused(value, encode)
    if depth > DEPTH_MAX:
        return Unfit(TOO_DEEP)
    for name, child in children:
        if not (name is None or isinstance(name, (str, int, float))):
            return Unfit(f"the name {name!r} of a member, which is no text")
        found = find(child, encode, depth + 1)
        if found is not None:
            # The pointer to what is too deep would be too long to read.
            step = "" if found.what is TOO_DEEP else f"/{str(name).replace('~', '~0').replace('/', '~1')}"
            return Unfit(found.what, found.hint, step + found.pointer)
    return None


def _refused(value: object, encode: Callable[[object], object]) -> Unfit | None:
    try:
        encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        if is_dataclass(value):
            return Unfit(repr(value), "dataclasses.asdict() makes a dict of it")
        hint = next((hint for types, hint in HINTS if isinstance(value, types)), "")
        # The text of a number or a text that can't be written has no use: it is very long, or can't be shown.
        return Unfit(repr(value) if isinstance(error, TypeError) or isinstance(value, (float, Decimal)) else str(error), hint)
    return None
