"""Functions around calls and handlers. No I/O."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

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
    """The function inside all middleware, of which the first is the outermost. What is around a coroutine function becomes one, so that each middleware sees
    whether the function inside it is one."""
    is_async = inspect.iscoroutinefunction(inner)
    for each in reversed(middleware):
        outer = each(inner)
        inner = cast(F, coroutine_function(outer)) if is_async and callable(outer) else outer
    return inner


def coroutine_function(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """The function as a coroutine function, whether it returns a value or an awaitable."""
    if inspect.iscoroutinefunction(function):
        return function

    @functools.wraps(function)
    async def call(*arguments: Any) -> Any:
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result

    return call


def awaitable(handler: Callable[[Item, Context], Awaitable[Outcome | None] | Outcome | None]) -> AsyncHandler:
    """The handler as a coroutine function."""
    return coroutine_function(handler)
