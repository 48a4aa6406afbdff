"""JSON with exact numbers: integers of any size, and other numbers with `parse_float=decimal.Decimal`."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from .errors import BadReply, NotJson

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


def dump(value: object) -> bytes:
    """The JSON text of a value. `Decimal` is written with all of its digits."""
    try:
        text = _ENCODER.encode(value)
        if DECIMAL in text:
            text = DECIMALS.sub(r"\1", text)
        return text.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise NotJson(f"the object can't be written as JSON: {error}") from error


def dump_lines(values: Iterable[object]) -> tuple[bytes, int]:
    """The values as NDJSON, and their number."""
    lines = [dump(value) for value in values]
    return b"".join(line + b"\n" for line in lines), len(lines)


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
