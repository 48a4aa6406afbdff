"""What `inspect` shows of methods that are made from functions, and whether a handler takes what a worker gives. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints


def show_as_method(method: Any, build: Callable[..., Any]) -> None:
    """Gives a method of `Queue` the name, the text and the signature that it has for its callers. `build` takes the name of the queue instead of `self`, and
    returns the call instead of its reply."""
    hints = get_type_hints(build)
    [result] = get_args(hints["return"])
    signature = inspect.signature(build)
    _, *parameters = signature.parameters.values()
    shown = [each.replace(annotation=hints[each.name]) for each in parameters]
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    returned = None if result is type(None) else result
    method.__name__, method.__qualname__, method.__doc__ = build.__name__, f"Queue.{build.__name__}", build.__doc__
    method.__signature__ = signature.replace(parameters=[self, *shown], return_annotation=returned)
    method.__annotations__ = {each.name: each.annotation for each in shown} | {"return": returned}


def check_handler(handler: object, *, may_be_async: bool) -> None:
    """Raises a TypeError if a worker can't call the handler with an item and a context."""
    check_function(handler, "the handler", "an item and a context", 2)
    if not may_be_async:
        check_not_async(handler, "the handler", "a worker")


def check_function(function: object, what: str, takes: str, count: int) -> None:
    """Raises a TypeError unless the function can be called with that many arguments, which are what it `takes`."""
    if not callable(function):
        raise TypeError(f"{what} is {function!r}: it must be a function of {takes}")
    if any(is_generator(each) for is_generator in (inspect.isgeneratorfunction, inspect.isasyncgenfunction) for each in _codes(function)):
        raise TypeError(f"{what} {_name(function)} is a generator, which runs only while something reads from it: write return instead of yield")
    try:
        signature = inspect.signature(function)
    except ValueError:
        # Some functions in C do not say what they take.
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise TypeError(f"{what} {_name(function)}{signature} must take {takes}: {error}") from None


def check_not_async(function: object, what: str, caller: str) -> None:
    """Raises a TypeError if only asyncio can call the function."""
    if any(map(inspect.iscoroutinefunction, _codes(function))):
        raise TypeError(f"{what} {_name(function)} is a coroutine: {caller} with threads can't await it, and one of deltaq.aio can")


def _codes(function: object) -> tuple[object, object]:
    """A function, or an object that is called like one with its method."""
    return function, function if inspect.isroutine(function) else type(function).__call__


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
