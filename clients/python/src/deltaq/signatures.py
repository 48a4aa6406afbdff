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
    if not callable(handler):
        raise TypeError(f"the handler is {handler!r}: it must be a function of an item and a context")
    function = handler if inspect.isroutine(handler) else type(handler).__call__
    if not may_be_async and (inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(function)):
        raise TypeError(f"the handler {_name(handler)} is a coroutine: a worker with threads can't await it, and one of deltaq.aio can")
    try:
        signature = inspect.signature(handler)
    except ValueError:
        # Some functions in C do not say what they take.
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise TypeError(f"the handler {_name(handler)}{signature} must take an item and a context: {error}") from None


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
