"""The replies of the API as dataclasses. Fields that a newer server adds are ignored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypedDict, TypeVar

from .json import Json

T = TypeVar("T")


def _read(cls: type[T], document: Json, **others: Any) -> T:
    """The document as a dataclass. `others` are the members that are no plain values."""
    names = (each.name for each in fields(cls))  # type: ignore[arg-type]
    return cls(**{name: document[name] for name in names if name in document} | others)


@dataclass(frozen=True)
class Delta:
    """A change of a key. `type` is `Added`, `Updated`, `Deleted`, `Replaced` or `Sync`."""

    type: str
    resource_version: int
    queued_at: str
    object: Any
    source: str | None = None
    #: Number of older deltas that were merged into this one.
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
    """A popped key with all of its changes since the last ack."""

    key: str
    lease: Lease
    #: Deliveries since the last ack.
    attempt: int
    failures: int
    is_in_initial_list: bool
    #: The changes, oldest first. In mode `events` there is one, in mode `keys` none.
    deltas: list[Delta]
    #: After a pop with `known`: the object that was acknowledged last, or None if there is none.
    known: Any = None
    #: After a pop with `diff`: the operations `{"op","path","value"?,"old"?}` from that object to the newest one, or None if there is no
    #: difference to show.
    diff: list[dict[str, Any]] | None = None
    #: `too_large` if the difference is left out.
    diff_omitted: str | None = None

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
            fields.get("diff"),
            fields.get("diff_omitted"),
        )

    @property
    def newest(self) -> Delta:
        """The newest change. An item of mode `keys` has none."""
        if not self.deltas:
            raise LookupError(f"the item {self.key!r} has no deltas: its queue is of mode keys")
        return self.deltas[-1]

    @property
    def object(self) -> Any:
        """The newest object. For a deleted key, its last object."""
        return self.newest.object

    @property
    def is_deleted(self) -> bool:
        """Whether the newest change is a deletion."""
        return bool(self.deltas) and self.newest.type == "Deleted"


@dataclass(frozen=True)
class Settled:
    """The result for one lease: `ok`, `repeated` (equivalent to `ok`), `stale` with the `outcome` of the lease, or `not_leased`."""

    lease_id: str
    how: str
    result: str
    outcome: str | None = None
    #: After a nack or a reject.
    failures: int | None = None
    due_at: str | None = None
    parked: bool = False
    #: After a settle with `hold`: when the hold of the queue ends.
    held_until: str | None = None
    #: After an extend.
    expires_at: str | None = None
    expires_in_ms: int = 0
    #: Number of changes that have arrived during the lease.
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
            get("held_until"),
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
    #: While a hold stops delivery: when it ends.
    held_until: str | None = None

    @classmethod
    def read(cls, fields: Json) -> Popped:
        items = [Item.read(item) for item in fields["items"]]
        settled = [Settled.read(settled) for settled in fields.get("settled") or []]
        return cls(items, settled, fields.get("closed") or False, fields.get("paused") or False, fields.get("held_until"))


@dataclass(frozen=True)
class Produced:
    """The reply to a produce call."""

    resource_version: int
    queued: int = 0
    #: Mode `keys`: adds of keys that were already ready.
    merged: int = 0
    ignored: int = 0
    #: Objects that were not newer than the newest state of their key.
    stale: int = 0
    #: Whether the sequence number had already been applied, so that this call changed nothing.
    duplicate: bool = False
    #: With a sequence number: the last number of the source that was applied.
    sequence: int | None = None
    #: The id of the queue. If it has changed, the queue was deleted and created again, and lacks earlier objects. None in a dry run without a queue.
    incarnation: str | None = None
    #: The life to which `resource_version` belongs. If it has changed, changes may be lost: `synced` with the version of an earlier reply shows whether.
    life: str | None = None
    #: For a rate-limited add: `key`, `failures`, `due_at` and `parked` of each key.
    keys: list[Json] | None = None
    #: With `skip_invalid`: the number of objects that were left out.
    invalid: int = 0
    #: With `skip_invalid`: `index`, `key`, `code` and `detail` of the first 10 objects that were left out.
    invalid_objects: list[Json] = field(default_factory=list)

    @classmethod
    def read(cls, fields: Json) -> Produced:
        return cls(**_counts(fields), keys=fields.get("keys"))


@dataclass(frozen=True)
class Place:
    """The incarnation, the life and the newest version of a queue."""

    #: The id of the queue. A queue that is created again under the same name has a new id.
    incarnation: str
    #: The id of the life. A life begins each time a server loads the queue.
    life: str
    resource_version: int

    @classmethod
    def read(cls, fields: Json) -> Place:
        return cls(fields["incarnation"], fields["life"], fields["status"]["resource_version"])

    @classmethod
    def of(cls, reply: Produced) -> Place | None:
        """The place in a reply; None if an older server has sent the reply."""
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


class QueueSettings(TypedDict, total=False):
    """The settings of a queue, as the API documents them. None resets a setting to its default."""

    mode: str | None
    key: Any
    known_objects: bool | None
    emit_replaced: bool | None
    lease: str | None
    max_failures: int | None
    rate_limiter: Json | None
    max_keys: int | None
    max_object_bytes: int | None
    max_deltas_per_key: int | None
    max_bytes_per_key: int | None
    retention: Json | None
    prune: list[str] | None
    ignore: list[str] | None
    version: str | None
    version_ties: str | None
    debounce: Json | None
    order: Json | None
    groups: Json | None
    max_leased: int | None
    rate: Json | None
    resync_period: str | None
    max_delete_percent: float | None
    max_deletes: int | None
    follow: Json | None
    push: Json | None
    hook: Json | None
    cloudevents: Json | None
    kubernetes: Json | None
    owner: str | None
    schema: Any
    indexes: dict[str, str] | None
    diff: Json | None


@dataclass(frozen=True)
class Settings:
    """The settings of a queue."""

    values: QueueSettings
    #: The ETag of the settings. A later call with this `if_match` is refused if the settings have changed.
    etag: str


@dataclass(frozen=True)
class SettingsPlan:
    """What a change of settings would make of a queue."""

    #: The present settings; None if there is no queue of this name.
    current: QueueSettings | None
    #: The ETag of the present settings, for `if_match` in a later call; None if there is no queue of this name.
    etag: str | None
    #: The settings after the change.
    planned: QueueSettings

    @classmethod
    def read(cls, document: Json) -> SettingsPlan:
        return _read(cls, document)


@dataclass(frozen=True)
class PushTest:
    """What an endpoint has answered to a test request."""

    #: The status; None without a whole answer.
    status: int | None
    #: The time from the start of the request to the last byte of its answer.
    duration_ms: int
    #: The status with the first 500 bytes of the body, or why there is no answer.
    answer: str

    @classmethod
    def read(cls, document: Json) -> PushTest:
        return _read(cls, document)


@dataclass(frozen=True)
class Status:
    """The counts and flags of a queue."""

    ready: int
    delayed: int
    leased: int
    parked: int
    #: Number of objects that were acknowledged.
    known: int
    held_bytes: int
    #: Pops that wait for keys.
    waiters: int
    has_synced: bool
    initial_remaining: int
    resource_version: int
    oldest_ready_age_ms: int
    oldest_unacknowledged_age_ms: int
    paused: bool
    closed: bool
    drained: bool
    building_indexes: list[str] = field(default_factory=list)
    building_groups: bool = False
    #: Deltas that were queued in the present life of the queue.
    changes: int = 0
    last_replace: Json | None = None
    followers: list[str] = field(default_factory=list)
    follow: Json | None = None
    push: Json | None = None
    hook: Json | None = None

    @classmethod
    def read(cls, document: Json) -> Status:
        return _read(cls, document)


@dataclass(frozen=True)
class QueueDocument:
    """A queue with its settings and its status."""

    name: str
    #: The id of the queue. It changes when the queue is deleted and created again.
    incarnation: str
    #: Changes with each start of the server.
    life: str
    auto_created: bool
    created_at: str
    settings: QueueSettings
    status: Status
    #: In the reply to `close` with `drain`: whether no key is ready, delayed or leased.
    drained: bool | None = None

    @classmethod
    def read(cls, document: Json) -> QueueDocument:
        return _read(cls, document, status=Status.read(document["status"]))


@dataclass(frozen=True)
class ListedItem:
    """A key with waiting or leased changes, as a list of the queue shows it."""

    key: str
    #: `ready`, `delayed`, `leased` or `parked`; None for a key without changes that only has failures.
    state: str | None
    #: The changes that wait, oldest first, and those that a worker has leased.
    deltas: list[Delta]
    leased_deltas: list[Delta]
    lease: Lease | None
    attempt: int
    failures: int
    last_error: str | None = None
    due_at: str | None = None
    source: str | None = None
    #: Since when the worker holds the key.
    leased_at: str | None = None
    #: As in `Item`, from `item` with `with_diff`.
    diff: list[dict[str, Any]] | None = None
    diff_omitted: str | None = None

    @classmethod
    def read(cls, document: Json) -> ListedItem:
        deltas, leased = ([Delta.read(delta) for delta in document[name]] for name in ("deltas", "leased_deltas"))
        lease = document.get("lease")
        return _read(cls, document, deltas=deltas, leased_deltas=leased, lease=None if lease is None else Lease.read(lease))


@dataclass(frozen=True)
class ViewObject:
    """An object of a view. Fields that the reply lacks are None."""

    key: str
    source: str | None
    resource_version: int | None
    object: Any

    @classmethod
    def read(cls, fields: Json) -> ViewObject:
        get = fields.get
        return cls(fields["key"], get("source"), get("resource_version"), get("object"))


@dataclass(frozen=True)
class TaggedObject(ViewObject):
    """An object of a view with its ETag."""

    #: The ETag of the object. A change with this `if_match` is refused if another change came in between.
    etag: str

    @classmethod
    def tagged(cls, fields: Json, etag: str) -> TaggedObject:
        get = fields.get
        return cls(fields["key"], get("source"), get("resource_version"), get("object"), etag)


@dataclass(frozen=True)
class Synced:
    """Whether the initial list is processed or, for a version, every change up to it is acknowledged."""

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
    """A page of a list. `continue_` is the token of the next page; None on the last page.

    An iteration yields the items of this page and of all pages after it, which it fetches: `for`, or `async for` with a client of asyncio.
    """

    items: list[T]
    continue_: str | None
    #: The number of the queue's newest event; None in the list of queues.
    resource_version: int | None
    #: In the list of queues: the queues that can't be read.
    unavailable: list[Json] = field(default_factory=list)
    #: In the list of parked errors: the number of keys whose errors are not listed, because there are too many different errors.
    other_keys: int = 0
    # Fetches the page with a token.
    _fetch: Callable[[str], Page[T]] | None = field(default=None, repr=False, compare=False)
    _fetch_async: Callable[[str], Awaitable[Page[T]]] | None = field(default=None, repr=False, compare=False)

    def __iter__(self) -> Iterator[T]:
        if self._fetch_async is not None:
            raise TypeError("a page of a client of asyncio is iterated by `async for`")
        page = self
        yield from page.items
        while page.continue_ is not None and self._fetch is not None:
            page = self._fetch(page.continue_)
            yield from page.items

    async def __aiter__(self) -> AsyncIterator[T]:
        if self._fetch is not None:
            raise TypeError("only a page of a client of asyncio is iterated by `async for`")
        page = self
        for item in page.items:
            yield item
        while page.continue_ is not None and self._fetch_async is not None:
            page = await self._fetch_async(page.continue_)
            for item in page.items:
                yield item

    @classmethod
    def reader(cls, read: Callable[[Json], T]) -> Callable[[Json], Page[T]]:
        def page(fields: Json) -> Page[T]:
            items = [read(item) for item in fields["items"]]
            unavailable, other_keys = fields.get("unavailable") or [], fields.get("other_keys") or 0
            return Page(items, fields.get("continue"), fields.get("resource_version"), unavailable, other_keys)

        return page
