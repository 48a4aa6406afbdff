"""JSON with exact numbers: integers of any size, and other numbers with `parse_float=decimal.Decimal`."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from .errors import BadReply, NotJson
from .unfit import find

#: An object of a queue, or a document of the API.
Json = dict[str, Any]

# The standard encoder can't write a Decimal as a number. So it writes a string that begins with this random mark; mark and quotes are removed afterwards.
DECIMAL = uuid.uuid4().hex
DECIMALS = re.compile(f'"{DECIMAL}([^"]*)"')


def _decimal_text(value: object) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        return DECIMAL + str(value)
    raise TypeError(f"{value!r} can't be written as JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_decimal_text)


def _decimal_text_or_nan(value: object) -> object:
    try:
        return _decimal_text(value)
    except TypeError:
        return math.nan


_LOOSE_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_decimal_text_or_nan)


def dump(value: object, index: int | None = None) -> bytes:
    """The JSON text of a value, which has this index in a list. `Decimal` is written with all of its digits."""
    try:
        return _encoded(_ENCODER, value)
    except (ValueError, TypeError, RecursionError) as error:
        if index is None and isinstance(value, list):
            for at, each in enumerate(value):
                dump(each, at)
        which = "the object" if index is None else f"object {index} (counted from 0)"
        reason = find(value, lambda part: _encoded(_ENCODER, part)) or error
        raise NotJson(f"{which} can't be written as JSON: {reason}") from error


def _encoded(encoder: json.JSONEncoder, value: object) -> bytes:
    text = encoder.encode(value)
    if DECIMAL in text:
        text = DECIMALS.sub(r"\1", text)
    return text.encode()


def _text_for_refusal(value: object) -> bytes:
    """A line that no server takes as JSON, although it may read the key of the object from it."""
    try:
        text = _encoded(_LOOSE_ENCODER, value)
    except (ValueError, TypeError, RecursionError):
        text = b""
    return text + b"NaN"


@dataclass(frozen=True)
class Lines:
    """Values as NDJSON."""

    body: bytes
    count: int
    #: Why values can't be written as JSON, by their index.
    unfit: dict[int, str]


def dump_lines(values: Iterable[object], *, skip_invalid: bool = False) -> Lines:
    """The values as NDJSON. With `skip_invalid`, a value that can't be written becomes a line that the server leaves out, unless all values are invalid."""
    lines: list[bytes] = []
    errors: dict[int, NotJson] = {}
    for index, value in enumerate(values):
        try:
            lines.append(dump(value, index))
        except NotJson as error:
            if not skip_invalid:
                raise
            errors[index] = error
            lines.append(_text_for_refusal(value))
    if errors and len(errors) == len(lines):
        raise errors[0]
    return Lines(b"".join(line + b"\n" for line in lines), len(lines), {index: str(error) for index, error in errors.items()})


def _whole(digits: str) -> int | Decimal:
    try:
        return int(digits)
    except ValueError:
        # `int` limits the number of digits that it reads. A `Decimal` keeps all of them, and is written with all of them.
        return Decimal(digits)


class Codec:
    """Reads JSON. `parse_float` converts the text of each number that is not an integer."""

    def __init__(self, parse_float: Callable[[str], Any] | None = None) -> None:
        self._parse_float = parse_float

    def load(self, text: bytes) -> Any:
        try:
            return self._load(text)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise BadReply(f"the reply is not JSON: {error}: {text[:100]!r}") from error
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise BadReply(f"the reply can't be read: {error!r}: {text[:100]!r}", is_json=True) from error

    def _load(self, text: bytes) -> Any:
        try:
            return json.loads(text, parse_float=self._parse_float)
        except ValueError:
            # Calling `_whole` for each number would slow down every reply, and few replies need it.
            return json.loads(text, parse_float=self._parse_float, parse_int=_whole)
