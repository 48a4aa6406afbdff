"""What the API replies, as dataclasses. Fields that a newer server adds are ignored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .json import Json

T = TypeVar("T")


@dataclass(frozen=True)
class Delta:
    """A change of a key. `type` is `Added`, `Updated`, `Deleted`, `Replaced` or `Sync`."""

    type: str
    resource_version: int
    queued_at: str
    object: Any
    source: str | None = None
    #: Older deltas that were merged into this one.
    coalesced: int = 0
    traceparent: str | None = None
    final_state_unknown: bool = False

    @classmethod
    def read(cls, fields: Json) -> Delta:
        get = fields.get
        return cls(
            fields["type"],
            fields["resource_version"],
            fields["queued_at"],
            get("object"),
            get("source"),
            get("coalesced") or 0,
            get("traceparent"),
            get("final_state_unknown") or False,
        )


@dataclass(frozen=True)
class Lease:
    id: str
    #: The fencing token, which grows with every lease of the queue.
    token: int
    worker: str | None
    expires_at: str
    expires_in_ms: int

    @classmethod
    def read(cls, fields: Json) -> Lease:
        return cls(fields["id"], fields["token"], fields.get("worker"), fields["expires_at"], fields["expires_in_ms"])


@dataclass(frozen=True)
class Item:
    """A popped key with everything that has happened to it since the last ack."""

    key: str
    lease: Lease
    #: Deliveries since the last ack.
    attempt: int
    failures: int
    is_in_initial_list: bool
    #: The changes, oldest first. In mode `events` there is one, in mode `keys` none.
    deltas: list[Delta]
    #: The object that was acknowledged last, of a pop with `known`; None if there is none.
    known: Any = None

    @classmethod
    def read(cls, fields: Json) -> Item:
        return cls(
            fields["key"],
            Lease.read(fields["lease"]),
            fields["attempt"],
            fields["failures"],
            fields["is_in_initial_list"],
            [Delta.read(delta) for delta in fields["deltas"]],
            fields.get("known"),
        )

    @property
    def newest(self) -> Delta:
        """The newest change. An item of mode `keys` has none."""
        if not self.deltas:
            raise LookupError(f"the item {self.key!r} has no deltas: its queue is of mode keys")
        return self.deltas[-1]

    @property
    def object(self) -> Any:
        """The newest object; of a deleted key, the last one."""
        return self.newest.object

    @property
    def is_deleted(self) -> bool:
        """Whether the newest change is a deletion."""
        return bool(self.deltas) and self.newest.type == "Deleted"


@dataclass(frozen=True)
class Settled:
    """What has become of a lease: `ok`, `repeated` (as good as ok), or `stale` with the `outcome` of the lease."""

    lease_id: str
    how: str
    result: str
    outcome: str | None = None
    #: After a nack or a reject.
    failures: int | None = None
    due_at: str | None = None
    parked: bool = False
    #: After an extend.
    expires_at: str | None = None
    expires_in_ms: int = 0
    #: Newer changes that wait behind the lease.
    pending_deltas: int = 0
    #: Whether the newest of them is a deletion.
    deleted: bool = False

    @classmethod
    def read(cls, fields: Json) -> Settled:
        get = fields.get
        return cls(
            fields["lease_id"],
            fields["as"],
            fields["result"],
            get("outcome"),
            get("failures"),
            get("due_at"),
            get("parked") or False,
            get("expires_at"),
            get("expires_in_ms") or 0,
            get("pending_deltas") or 0,
            get("deleted") or False,
        )


@dataclass(frozen=True)
class Popped:
    """The reply to a pop."""

    items: list[Item]
    settled: list[Settled]
    is_closed: bool
    is_paused: bool

    @classmethod
    def read(cls, fields: Json) -> Popped:
        items = [Item.read(item) for item in fields["items"]]
        settled = [Settled.read(settled) for settled in fields.get("settled") or []]
        return cls(items, settled, fields.get("closed") or False, fields.get("paused") or False)


@dataclass(frozen=True)
class Produced:
    """The reply to a call that produces."""

    resource_version: int
    queued: int = 0
    #: Mode `keys`: adds of keys that were ready already.
    merged: int = 0
    ignored: int = 0
    #: Objects that were not newer than the newest state of their key.
    stale: int = 0
    #: Whether the sequence number of the call was applied before, so that this call changed nothing.
    duplicate: bool = False
    #: With a sequence number: that of the last call of the source that was applied.
    sequence: int | None = None
    #: The queue: another one than before has nothing of what was sent. None in a dry run without a queue.
    incarnation: str | None = None
    #: The life to which `resource_version` belongs: in another one than before, what was sent may be lost. `synced` with its version says so.
    life: str | None = None
    #: Of a rate-limited add: `key`, `failures`, `due_at` and `parked` of each key.
    keys: list[Json] | None = None
    #: With `skip_invalid`: the number of objects that were left out.
    invalid: int = 0
    #: `index`, `key`, `code` and `detail` of the first 10 of them.
    invalid_objects: list[Json] = field(default_factory=list)

    @classmethod
    def read(cls, fields: Json) -> Produced:
        return cls(**_counts(fields), keys=fields.get("keys"))


@dataclass(frozen=True)
class Place:
    """A queue, and the life in which it has a version."""

    #: The queue: a later one of the name has another incarnation.
    incarnation: str
    #: A life begins each time a server loads the queue.
    life: str
    resource_version: int

    @classmethod
    def read(cls, fields: Json) -> Place:
        return cls(fields["incarnation"], fields["life"], fields["status"]["resource_version"])

    @classmethod
    def of(cls, reply: Produced) -> Place | None:
        """None in the reply of an older server."""
        if reply.incarnation is None or reply.life is None:
            return None
        return cls(reply.incarnation, reply.life, reply.resource_version)


@dataclass(frozen=True)
class Replaced(Produced):
    """The reply to a Replace."""

    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0
    skipped: int = 0
    taken_over: int = 0

    @classmethod
    def read(cls, fields: Json) -> Replaced:
        return cls(**_counts(fields, "replaced", "deleted", "unchanged", "skipped", "taken_over"))


def _counts(fields: Json, *more: str) -> Json:
    names = ("resource_version", "queued", "merged", "ignored", "stale", "duplicate", *more)
    place = {name: fields.get(name) for name in ("sequence", "incarnation", "life")}
    left_out = {"invalid": fields.get("invalid", 0), "invalid_objects": fields.get("invalid_objects") or []}
    return {name: fields[name] for name in names} | place | left_out


@dataclass(frozen=True)
class Settings:
    """The settings of a queue."""

    values: Json
    #: For `if_match` of a later call, which is refused if somebody has changed them.
    etag: str


@dataclass(frozen=True)
class ViewObject:
    """An object of a view. Fields that the call left out are None."""

    key: str
    source: str | None
    resource_version: int | None
    object: Any

    @classmethod
    def read(cls, fields: Json) -> ViewObject:
        get = fields.get
        return cls(fields["key"], get("source"), get("resource_version"), get("object"))


@dataclass(frozen=True)
class Synced:
    """Whether the initial list, or everything up to a version, is acknowledged."""

    synced: bool
    remaining: int
    reached: bool | None = None
    resource_version: int | None = None
    parked: int | None = None

    @classmethod
    def read(cls, fields: Json) -> Synced:
        get = fields.get
        return cls(fields["synced"], fields["remaining"], get("reached"), get("resource_version"), get("parked"))


@dataclass(frozen=True)
class Page(Generic[T]):
    """A part of a list. `continue_` is the token for the next part, or None."""

    items: list[T]
    continue_: str | None
    #: The number of the queue's newest event; None in the list of queues.
    resource_version: int | None
    #: Queues of the list of queues that can't be read.
    unavailable: list[Json] = field(default_factory=list)
    #: Of the list of parked errors: keys whose errors no page has, because there are too many.
    other_keys: int = 0

    @classmethod
    def reader(cls, read: Callable[[Json], T]) -> Callable[[Json], Page[T]]:
        def page(fields: Json) -> Page[T]:
            items = [read(item) for item in fields["items"]]
            unavailable, other_keys = fields.get("unavailable") or [], fields.get("other_keys") or 0
            return Page(items, fields.get("continue"), fields.get("resource_version"), unavailable, other_keys)

        return page
