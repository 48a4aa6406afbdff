"""Checks of what callers pass, so that a mistake is seen where it is made. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .json import Json


def kind(value: object) -> str:
    """The type of a value as a message names it: `str`, or `deltaq.client.Client`."""
    of = type(value)
    return of.__qualname__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__qualname__}"


def check_queue(queue: object, wanted: type, taker: str, client: str) -> None:
    """Raises a TypeError unless this is a queue of the right kind of client."""
    if not isinstance(queue, wanted):
        raise TypeError(f"the queue is {_shown(queue)}: {taker} takes client.queue(name) of {client}")


def check_text(value: object, what: str, example: str = "") -> None:
    """Raises a TypeError unless the value is a text."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is {_shown(value)}: it must be a text{example and f' such as {example}'}")


def check_key(key: object) -> None:
    check_text(key, "the key")


def list_of(call: str, objects: Any, takes: str = "a list of dicts", hint: str = "") -> Iterable[Json]:
    """The objects of a call. Raises a TypeError for what is no list, although Python could read it like one."""
    if isinstance(objects, (Mapping, str, bytes, bytearray)) or not isinstance(objects, Iterable):
        raise TypeError(f"{call} takes {takes}, not a {kind(objects)}{hint}")
    if hasattr(objects, "read"):
        raise TypeError(f"{call} takes {takes}, not a file: json.load(file) reads one")
    return objects


def one_or_list(call: str, objects: Any) -> Any:
    """The object or the list of objects of a call."""
    if isinstance(objects, Mapping):
        return objects
    hint = ": delete_key takes a key" if call == "delete" and isinstance(objects, str) else ""
    return list(list_of(call, objects, "a dict or a list of dicts", hint))


def _shown(value: object) -> str:
    return repr(value) if value is None or isinstance(value, (str, int, float, list, dict)) else f"a {kind(value)}"
