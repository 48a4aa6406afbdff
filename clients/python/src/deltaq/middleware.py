"""Functions around calls and handlers. No I/O."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from .calls import Call
from .leases import Context
from .models import Item
from .outcomes import Outcome

F = TypeVar("F")

#: Makes a call with its repeats, and returns what the method of the call returns.
Send = Callable[[Call[Any]], Any]
#: The same for asyncio.
AsyncSend = Callable[[Call[Any]], Awaitable[Any]]
#: A handler that is a coroutine function.
AsyncHandler = Callable[[Item, Context], Awaitable[Outcome | None]]


def wrap(inner: F, middleware: Sequence[Callable[[F], F]]) -> F:
    """The function inside all middleware, of which the first is the outermost."""
    for each in reversed(middleware):
        inner = each(inner)
    return inner


def awaitable(handler: Callable[[Item, Context], Awaitable[Outcome | None] | Outcome | None]) -> AsyncHandler:
    """The handler as a coroutine function."""
    if inspect.iscoroutinefunction(handler):
        return handler

    @functools.wraps(handler)
    async def handle(item: Item, context: Context) -> Outcome | None:
        result = handler(item, context)
        return await result if inspect.isawaitable(result) else result

    return handle
