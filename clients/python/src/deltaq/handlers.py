"""The handlers of an informer. No I/O: this module returns the calls, and the informer makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cache import Added, Event, Store, Updated
from .models import ViewObject
from .signatures import check_function, check_not_async

#: A function and its arguments. The informer with threads calls the function; the informer for asyncio also awaits its result.
Notification = tuple[Callable[..., Any], tuple[Any, ...]]


#: What the functions of a handler take.
TAKES = {
    "on_add": ("an entry and whether it was in the initial list", 2),
    "on_update": ("the old and the new entry", 2),
    "on_delete": ("an entry", 1),
}


@dataclass(frozen=True)
class Handler:
    """The functions that are called after each change of the store. Each may be None.

    `on_add` gets the entry and whether it was in the initial list. `on_delete` gets a `DeletedFinalStateUnknown` if the last state is unknown.
    """

    on_add: Callable[[ViewObject, bool], Any] | None = None
    on_update: Callable[[ViewObject, ViewObject], Any] | None = None
    on_delete: Callable[[ViewObject], Any] | None = None

    def __post_init__(self) -> None:
        for name, (takes, count) in TAKES.items():
            if getattr(self, name) is not None:
                check_function(getattr(self, name), name, takes, count)

    def notification(self, event: Event) -> Notification | None:
        if isinstance(event, Added):
            return self.on_add and (self.on_add, (event.entry, event.is_in_initial_list))
        if isinstance(event, Updated):
            return self.on_update and (self.on_update, (event.old, event.new))
        return self.on_delete and (self.on_delete, (event.entry,))

    def first(self, store: Store) -> list[Notification]:
        """The calls for a handler that is added late: an add for each object."""
        on_add = self.on_add
        return [(on_add, (entry, True)) for entry in store.list()] if on_add else []

    def resync(self, store: Store) -> list[Notification]:
        """The calls of a resync: an update of each object, from its current state to the same state."""
        on_update = self.on_update
        return [(on_update, (entry, entry)) for entry in store.list()] if on_update else []


def check_handlers(handler: object, *, may_be_async: bool) -> None:
    """Raises a TypeError unless an informer can call the handler."""
    if not isinstance(handler, Handler):
        raise TypeError(f"the handler is {handler!r}: expected a Handler, such as Handler(on_add=f)")
    for name in () if may_be_async else TAKES:
        if getattr(handler, name) is not None:
            check_not_async(getattr(handler, name), name, "an informer")
