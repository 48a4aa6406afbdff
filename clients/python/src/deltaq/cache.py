"""The local store of an informer, and how the rows of a watch change it. No input or output."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import BadReply, Problem
from .json import Json
from .models import ViewObject

#: The values of an object in an index: a JSON pointer, or a function.
Index = str | Callable[[Any], Iterable[str]]


class DeletedFinalStateUnknown(ViewObject):
    """A deleted object whose last state is unknown: a new list lacks it, or the server reports `final_state_unknown`. `object` is the store's last one."""

    @classmethod
    def of(cls, entry: ViewObject) -> DeletedFinalStateUnknown:
        return cls(entry.key, entry.source, entry.resource_version, entry.object)


@dataclass(frozen=True)
class Added:
    entry: ViewObject
    is_in_initial_list: bool


@dataclass(frozen=True)
class Updated:
    old: ViewObject
    new: ViewObject


@dataclass(frozen=True)
class Deleted:
    #: A `DeletedFinalStateUnknown` if the last state is unknown.
    entry: ViewObject


Event = Added | Updated | Deleted


def pointer_values(pointer: str) -> Callable[[Any], list[str]]:
    """An index function: its values are the string at a JSON pointer, or the strings in the array at the pointer."""
    if not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer: it must begin with /")
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]

    def values(value: Any) -> list[str]:
        for step in steps:
            if isinstance(value, dict):
                value = value.get(step)
            elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
                value = value[int(step)]
            else:
                return []
        found = value if isinstance(value, list) else [value]
        return [text for text in found if isinstance(text, str)]

    return values


class Store:
    """The objects of a view, with indexes. Any thread may read the store at any time; only its informer changes it."""

    def __init__(self, indexes: Mapping[str, Index] | None = None) -> None:
        self._entries: dict[str, ViewObject] = {}
        self._indexers = {name: pointer_values(index) if isinstance(index, str) else index for name, index in (indexes or {}).items()}
        # Invariant: a key is in `_indexed[name][value]` iff its object has this value in the index.
        self._indexed: dict[str, dict[str, set[str]]] = {name: {} for name in self._indexers}
        self._lock = threading.RLock()

    def get(self, key: str) -> ViewObject | None:
        with self._lock:
            return self._entries.get(key)

    def list(self) -> builtins.list[ViewObject]:
        """All objects."""
        with self._lock:
            return [*self._entries.values()]

    def keys(self) -> builtins.list[str]:
        with self._lock:
            return [*self._entries]

    def by_index(self, name: str, value: str) -> builtins.list[ViewObject]:
        """The objects that have the value in the index, in key order."""
        with self._lock:
            keys = self._index(name).get(value, ())
            return [self._entries[key] for key in sorted(keys)]

    def index_values(self, name: str) -> builtins.list[str]:
        """The values of an index."""
        with self._lock:
            return sorted(self._index(name))

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)

    def __contains__(self, key: object) -> bool:
        with self._lock:
            return key in self._entries

    def _index(self, name: str) -> dict[str, set[str]]:
        if name not in self._indexed:
            raise KeyError(f"there is no index {name!r}; there are {sorted(self._indexed)}")
        return self._indexed[name]

    def put(self, entry: ViewObject) -> ViewObject | None:
        """Stores an object and returns the previous one. If an index function raises an exception, the store keeps the previous object."""
        with self._lock:
            indexed = {name: {*values(entry.object)} for name, values in self._indexers.items()}
            old = self.remove(entry.key)
            self._entries[entry.key] = entry
            for name, values in indexed.items():
                for value in values:
                    self._indexed[name].setdefault(value, set()).add(entry.key)
            return old

    def remove(self, key: str) -> ViewObject | None:
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                for name, values in self._indexers.items():
                    for value in values(old.object):
                        keys = self._indexed[name].get(value, set())
                        keys.discard(key)
                        if not keys:
                            self._indexed[name].pop(value, None)
            return old


class Cache:
    """Applies the rows of watches to a store.

    A watch from version 0 begins with all objects. Once all of them have arrived, they replace the contents of the store. If the stream ends
    earlier, the store does not change.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        #: Whether the store has had a complete list.
        self.has_synced = False
        #: The version from which the next watch continues. None: the next watch begins with all objects. A recreated queue answers 410 to an old version.
        self.version: int | None = None
        self._list: dict[str, ViewObject] = {}

    def begin(self) -> int:
        """The version for a new watch."""
        self._list = {}
        return self.version or 0

    def expire(self) -> None:
        """Forgets the version, which is too old: the next watch begins with all objects."""
        self.version = None

    def apply(self, row: Json) -> Generator[Event, None, None]:
        """Applies a row. The store changes before each event is returned. An exception of an index function is raised."""
        try:
            kind = row["type"]
            if kind == "Error":
                problem = row["problem"]
                raise Problem(problem["status"], problem)
            version = row["resource_version"]
            entry = ViewObject.read(row) if kind in ("Added", "Updated", "Deleted") else None
        except (KeyError, TypeError) as error:
            raise BadReply(f"a row of the watch does not match the API: {error!r}: {row!r}", is_json=True) from error
        if self.version is None:
            if entry is not None:
                self._list_entry(kind, entry)
            elif kind == "Bookmark" and row.get("initial_events_end"):
                yield from self._end_list(version)
            return
        if entry is not None:
            yield from self._change(kind, entry, is_state_known=not row.get("final_state_unknown"))
        # The version is set after the event was handled. If the handler is interrupted, the server sends the row again.
        self.version = version

    def _list_entry(self, kind: str, entry: ViewObject) -> None:
        if kind == "Deleted":
            self._list.pop(entry.key, None)
        else:
            self._list[entry.key] = entry

    def _end_list(self, version: int) -> Iterator[Event]:
        listed, self._list = self._list, {}
        for old in self.store.list():
            if old.key not in listed:
                yield from self._remove(old.key, None)
        for entry in listed.values():
            yield from self._put(entry, is_in_initial_list=not self.has_synced)
        self.has_synced = True
        self.version = version

    def _change(self, kind: str, entry: ViewObject, *, is_state_known: bool) -> Iterator[Event]:
        if kind == "Deleted":
            yield from self._remove(entry.key, entry if is_state_known else None)
        else:
            yield from self._put(entry, is_in_initial_list=False)

    def _put(self, entry: ViewObject, *, is_in_initial_list: bool) -> Iterator[Event]:
        old = self.store.put(entry)
        if old is None:
            yield Added(entry, is_in_initial_list)
        elif old != entry:
            yield Updated(old, entry)

    def _remove(self, key: str, state: ViewObject | None) -> Iterator[Event]:
        """`state` is the last state, or None if it is unknown."""
        old = self.store.remove(key)
        if old is not None:
            yield Deleted(DeletedFinalStateUnknown.of(old) if state is None else state)
