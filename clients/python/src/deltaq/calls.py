"""The calls of the API: for each one, the request and how its reply is read. No input or output."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote, unquote, urlencode

from .arguments import check_key, list_of, one_or_list
from .durations import Duration, HoldScope, duration_seconds, duration_text, hold_of, waits_text
from .errors import NotJson
from .json import Json, Lines, dump, dump_lines
from .models import (
    ListedItem,
    Page,
    Place,
    Popped,
    Produced,
    PushTest,
    QueueDocument,
    QueueSettings,
    Replaced,
    Settings,
    SettingsPlan,
    Settled,
    Status,
    Synced,
    TaggedObject,
    ViewObject,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Call(Generic[T_co]):
    """A request, and how its reply is read."""

    method: str
    #: The path with the query.
    target: str
    body: bytes | None
    content_type: str
    read: Callable[[Any], T_co]
    #: How long the server may wait before it replies, in seconds.
    wait: float = 0.0
    #: A problem document with this code is read like a successful reply.
    read_problem: str | None = None
    #: Whether the call is not idempotent. Such a call is repeated only if it was certainly not applied.
    counts_twice: bool = False
    #: Additional headers.
    headers: dict[str, str] = field(default_factory=dict)
    #: Whether `read` gets a pair of the reply and its ETag.
    is_tagged: bool = False
    #: Sends the call, inside all middleware of the client.
    send: Callable[[Call[Any]], Any] | None = field(default=None, repr=False, compare=False)

    @property
    def queue(self) -> str:
        """The name of the queue; empty if the call concerns no queue."""
        parts = self._parts
        return unquote(parts[1]) if parts[0] == "queues" and len(parts) > 1 else ""

    @property
    def name(self) -> str:
        """The end of the path, such as `add`, `pop` or `settle`, without the name of a source or an index; empty for the queue itself."""
        rest = self._parts[2:] if self.queue else self._parts
        # A source or an index may have the name of a call.
        return "" if not rest else rest[0] if rest[0] in ("sources", "indexes") else rest[-1]

    @property
    def label(self) -> str:
        """The call as the log names it. The target has the id of a pop, which is a secret."""
        name = self.name or {"GET": "get", "PUT": "put_settings", "PATCH": "patch_settings", "DELETE": "delete_queue"}.get(self.method, self.method)
        return f'the {name} of the queue "{self.queue}"' if self.queue else f"the call {name}"

    @property
    def _parts(self) -> list[str]:
        return self.target.split("?", 1)[0].split("/")[2:]

    def with_headers(self, **headers: str) -> Call[T_co]:
        """The same call with other headers in addition."""
        return dataclasses.replace(self, headers=self.headers | headers)


def _call(
    method: str,
    path: str,
    read: Callable[[Any], T],
    query: Mapping[str, object] | None = None,
    body: object = None,
    *,
    wait: Duration | None = None,
    read_problem: str | None = None,
    counts_twice: bool = False,
    headers: dict[str, str] | None = None,
    is_tagged: bool = False,
) -> Call[T]:
    parameters = {name: _text(value) for name, value in (query or {}).items() if value is not None and value is not False}
    seconds = 0.0
    if wait is not None:
        parameters["wait"], seconds = duration_text(wait), duration_seconds(wait)
    target = path + ("?" + urlencode(parameters, quote_via=quote) if parameters else "")
    if body is None:
        data, content_type = None, "application/json"
    elif isinstance(body, bytes):
        data, content_type = body, "application/x-ndjson"
    else:
        data, content_type = dump(body), "application/json"
    return Call(method, target, data, content_type, read, seconds, read_problem, counts_twice, headers or {}, is_tagged)


def _text(value: object) -> str:
    return "true" if value is True else str(value)


def _queue(queue: str, rest: str = "") -> str:
    return f"/v1/queues/{_segment(queue)}{rest}"


def _segment(name: str) -> str:
    # HTTP libraries and proxies remove these segments, so that the path would name something else.
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise ValueError(f"{name!r} is no name: a path can't have it as a part")
    return quote(name, safe="")


def _document(fields: Any) -> Json:
    return dict(fields)


def _nothing(_: Any) -> None:
    return None


# Producing.


def _trace(traceparent: str | None) -> dict[str, str]:
    return {} if traceparent is None else {"traceparent": traceparent}


def _conditions(if_match: str | None, if_absent: bool) -> dict[str, str]:
    given = {"if-match": if_match, "if-none-match": "*" if if_absent else None}
    return {name: value for name, value in given.items() if value is not None}


def _produce(
    queue: str,
    call: str,
    objects: Any,
    source: str | None,
    sequence: int | None,
    *,
    traceparent: str | None,
    key: str | None = None,
    if_match: str | None = None,
    if_absent: bool = False,
    query: Mapping[str, object] | None = None,
) -> Call[Produced]:
    body = one_or_list(call, objects) if key is None else None
    parameters = {"source": source, "sequence": sequence, **(query or {})}
    headers = {**_trace(traceparent), **_conditions(if_match, if_absent)}
    # A rate-limited add counts as a failure. A repeat of a call that was applied would be refused, because its own change is the newest one.
    counts_twice = (bool(parameters.get("rate_limited")) or if_match is not None or if_absent) and sequence is None
    return _call("POST", _queue(queue, f"/{call}"), Produced.read, parameters, body, counts_twice=counts_twice, headers=headers)


def add(
    queue: str,
    objects: Json | Iterable[Json],
    *,
    key: str | None = None,
    source: str | None = None,
    sequence: int | None = None,
    delay: Duration | None = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    head_start: Duration | None = None,
    must_exist: bool = False,
    if_match: str | None = None,
    if_absent: bool = False,
    traceparent: str | None = None,
) -> Call[Produced]:
    """Adds an object or a list of objects, all or none. `key` is the key of a single object that does not contain it. With `source` and `sequence`, the
    server applies the call once, however often it is repeated. With `debounce`, the keys are delivered when they have been quiet for this time, at the
    latest after `max_wait`. With `head_start`, they count as having arrived so much earlier, or later if it is negative. With `must_exist`, the call is
    refused if the queue does not exist, which otherwise creates it. With `if_match`, a single object is refused unless the newest object of its key has this
    ETag, which `latest_object` returns; with `if_absent`, if there is one. `traceparent` is the W3C trace that led to the call."""
    query = {"key": key, **waits_text(delay, debounce, max_wait, head_start), "must_exist": must_exist}
    return _produce(queue, "add", objects, source, sequence, traceparent=traceparent, if_match=if_match, if_absent=if_absent, query=query)


def add_key(
    queue: str,
    key: str,
    *,
    source: str | None = None,
    sequence: int | None = None,
    delay: Duration | None = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    head_start: Duration | None = None,
    rate_limited: bool = False,
    must_exist: bool = False,
    traceparent: str | None = None,
) -> Call[Produced]:
    """Mode `keys`: adds a key without an object. With `rate_limited`, the key waits as after a failure, and the call counts as one."""
    check_key(key)
    query = {"key": key, **waits_text(delay, debounce, max_wait, head_start), "rate_limited": rate_limited, "must_exist": must_exist}
    return _produce(queue, "add", None, source, sequence, traceparent=traceparent, key=key, query=query)


def update(
    queue: str,
    objects: Json | Iterable[Json],
    *,
    key: str | None = None,
    source: str | None = None,
    sequence: int | None = None,
    delay: Duration | None = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    head_start: Duration | None = None,
    must_exist: bool = False,
    if_match: str | None = None,
    if_absent: bool = False,
    traceparent: str | None = None,
) -> Call[Produced]:
    """Updates an object or a list of objects, all or none. `if_match` and `if_absent` are those of `add`."""
    query = {"key": key, **waits_text(delay, debounce, max_wait, head_start), "must_exist": must_exist}
    return _produce(queue, "update", objects, source, sequence, traceparent=traceparent, if_match=if_match, if_absent=if_absent, query=query)


def delete(
    queue: str,
    objects: Json | Iterable[Json],
    *,
    source: str | None = None,
    sequence: int | None = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    head_start: Duration | None = None,
    must_exist: bool = False,
    if_match: str | None = None,
    traceparent: str | None = None,
) -> Call[Produced]:
    """Deletes the keys of an object or of a list of objects, whose last states these are. With `if_match`, a single
    object is refused unless the newest object of its key has this ETag."""
    query = {**waits_text(None, debounce, max_wait, head_start), "must_exist": must_exist}
    return _produce(queue, "delete", objects, source, sequence, traceparent=traceparent, if_match=if_match, query=query)


def delete_key(
    queue: str,
    key: str,
    *,
    source: str | None = None,
    sequence: int | None = None,
    debounce: Duration | None = None,
    max_wait: Duration | None = None,
    head_start: Duration | None = None,
    must_exist: bool = False,
    if_match: str | None = None,
    traceparent: str | None = None,
) -> Call[Produced]:
    """Deletes a key. Its last state is the newest object that the queue has. With `if_match`, the call is refused unless that object has this ETag."""
    check_key(key)
    query = {"key": key, **waits_text(None, debounce, max_wait, head_start), "must_exist": must_exist}
    return _produce(queue, "delete", None, source, sequence, traceparent=traceparent, if_match=if_match, key=key, query=query)


def replace(
    queue: str,
    objects: Iterable[Json],
    *,
    source: str | None = None,
    sequence: int | None = None,
    only_changed: bool = False,
    max_delete_percent: int | None = None,
    max_deletes: int | None = None,
    allow_empty: bool = False,
    keep_last: bool = False,
    skip_invalid: bool = False,
    dry_run: bool = False,
    must_exist: bool = False,
    traceparent: str | None = None,
) -> Call[Replaced]:
    """Sends the whole list of a source, of any length. What the source no longer has is deleted. The rules: docs/api/lists.md.

    `source`: whose list it is; only keys of this source are deleted.
    `sequence`: the number of the call, which the server applies once.
    `only_changed`: leaves out objects that are as they were.
    `max_delete_percent`, `max_deletes`: refuse a list that deletes more than both, with 409 `mass-delete`; by default, the queue has a limit.
    `allow_empty`: an empty list may delete everything.
    `keep_last`: of several objects with the same key the last one counts; otherwise they refuse the list.
    `skip_invalid`: leaves out invalid objects, at most a tenth of the list. A single invalid object in a list of several is always left out; a list whose
    only object is invalid is refused. The keys of these objects keep their state.
    `dry_run`: changes nothing, and returns what would be.
    `must_exist`: refuses the call if the queue does not exist, instead of creating it.
    `traceparent`: the W3C trace that led to the call.
    """
    lines = dump_lines(list_of("replace", objects), skip_invalid=skip_invalid)
    body = lines.body + dump({"$end": lines.count}) + b"\n"
    query = {
        "source": source,
        "sequence": sequence,
        "only_changed": only_changed,
        "max_delete_percent": max_delete_percent,
        "max_deletes": max_deletes,
        "allow_empty": allow_empty,
        "duplicates": "last" if keep_last else None,
        "skip_invalid": skip_invalid,
        "dry_run": dry_run,
        "must_exist": must_exist,
    }
    path = _queue(queue, "/replace")
    return _call("POST", path, lambda fields: Replaced.read(_explained(fields, lines)), query, body, headers=_trace(traceparent))


def deltas(
    queue: str,
    deltas: Iterable[Json],
    *,
    source: str | None = None,
    sequence: int | None = None,
    skip_invalid: bool = False,
    must_exist: bool = False,
    traceparent: str | None = None,
) -> Call[Produced]:
    """Sends a mixed batch of `{"type","key"?,"object"?,...}`, all or none. With `skip_invalid`, deltas with an invalid object are left out, however many
    they are, and the others are applied. With `expected_version`, the batch is refused if the newest object of the key has another version, or if 0 is
    expected and there is one."""
    batch = list(list_of("deltas", deltas))
    # If only the reply was lost, a repeat is refused: the first call has changed the version.
    expects = any(delta.get("expected_version") is not None for delta in batch)
    path, headers = _queue(queue, "/deltas"), _trace(traceparent)
    counts_twice = expects and sequence is None
    query = {"source": source, "sequence": sequence, "must_exist": must_exist}
    if not skip_invalid or not batch:
        return _call("POST", path, Produced.read, query, batch, counts_twice=counts_twice, headers=headers)
    # If the body has one entry per line, an entry that is not valid JSON does not affect the others.
    lines = dump_lines(map(_writable, batch), skip_invalid=True)
    explained: Callable[[Json], Produced] = lambda fields: Produced.read(_explained(fields, lines))  # noqa: E731
    return _call("POST", path, explained, query | {"skip_invalid": True}, lines.body, counts_twice=counts_twice, headers=headers)


def _writable(delta: Json) -> Json:
    """A deletion whose object can't be written as JSON deletes its key."""
    if delta.get("type") == "Deleted" and "key" in delta:
        try:
            dump(delta)
        except NotJson:
            return {name: value for name, value in delta.items() if name != "object"}
    return delta


def _explained(fields: Json, lines: Lines) -> Json:
    """The reply. For an object that could not be written as JSON, that is the reason in the reply, because the server has only received a broken line."""
    for row in fields.get("invalid_objects") or []:
        row["detail"] = lines.unfit.get(row["index"], row["detail"])
    return fields


def resync(queue: str, *, traceparent: str | None = None) -> Call[Produced]:
    """Queues a `Sync` delta for each known key that has no waiting change and is neither leased nor parked."""
    return _call("POST", _queue(queue, "/resync"), Produced.read, counts_twice=True, headers=_trace(traceparent))


def seed(queue: str, objects: Iterable[Json]) -> Call[Json]:
    """Makes objects `{"key"?,"source"?,"object"}` known without a delta."""
    return _call("POST", _queue(queue, "/seed"), _document, None, dump_lines(list_of("seed", objects)).body, counts_twice=True)


def report_source(queue: str, source: str, problem: str | None) -> Call[None]:
    """Reports why the queue is not in step with a source; None reports that it is in step."""
    return _call("POST", _queue(queue, "/sources"), _nothing, None, {"source": source, "problem": problem})


def seen_source(queue: str, source: str) -> Call[None]:
    """Reports that a source was reached and has no change, so that it does not count as silent."""
    return _call("POST", _queue(queue, f"/sources/{_segment(source)}/seen"), _nothing)


def set_stale_after(queue: str, source: str, stale_after: Duration | None) -> Call[Json]:
    """Sets how long a source may be silent before it counts as stale. None removes the threshold."""
    threshold = None if stale_after is None else duration_text(stale_after)
    return _call("PATCH", _queue(queue, f"/sources/{_segment(source)}"), _document, None, {"stale_after": threshold})


def renumber_source(queue: str, source: str, sequence: int | None) -> Call[Json]:
    """Sets the last sequence number of a source. None forgets it: the next call of the source is applied whatever its number is."""
    return _call("PATCH", _queue(queue, f"/sources/{_segment(source)}"), _document, None, {"sequence": sequence})


def forget(queue: str, keys: Sequence[str]) -> Call[Json]:
    """Sets the failures of keys to 0."""
    return _call("POST", _queue(queue, "/forget"), _document, None, {"keys": list(keys)})


# Consuming.


def new_pop_id() -> str:
    """A random id for a pop, which other clients can't guess."""
    return uuid.uuid4().hex


def pop(
    queue: str,
    *,
    wait: Duration = 0,
    max: int | None = None,
    lease_duration: Duration | None = None,
    worker: str | None = None,
    id: str | None = None,
    group: str | None = None,
    with_known: bool = False,
    with_diff: bool = False,
    settle: Sequence[Json] = (),
) -> Call[Popped]:
    """Settles earlier leases, and then leases up to `max` keys, by default one. A repeat with the same `id` returns the same leases. The default `id` is
    a new one. With `group`, only keys of this group are leased, outside its turns. With `with_known`, items have the object that was acknowledged
    last, and with `with_diff` the difference from it to the newest one."""
    query = {
        "max": max,
        "lease_duration": None if lease_duration is None else duration_text(lease_duration),
        "worker": worker,
        "id": id or new_pop_id(),
        "group": group,
        "with": ",".join(name for name, wanted in [("known", with_known), ("diff", with_diff)] if wanted) or None,
    }
    return _call("POST", _queue(queue, "/pop"), Popped.read, query, {"settle": list(settle)}, wait=wait)


def _read_settled(fields: Json) -> list[Settled]:
    return [Settled.read(settled) for settled in fields["settled"]]


def settle(queue: str, settles: Sequence[Json]) -> Call[list[Settled]]:
    """Ends or extends leases, each in its own way: `{"lease_id" or "lease_ids","as","delay"?,"error"?,"lease_duration"?}`.
    With `"through"`, the `resource_version` of a leased delta, an ack, nack or release settles only the deltas after it; those up to it are acknowledged. With
    `"keep": True` the lease goes on."""
    body = {"settle": list(settles)}
    return _call("POST", _queue(queue, "/settle"), _read_settled, None, body, read_problem="lease-lost")


def _settle_all(queue: str, how: str, leases: str | Sequence[str], until_changed: Duration | None = None, **fields: object) -> Call[list[Settled]]:
    which: Json = {"lease_id": leases} if isinstance(leases, str) else {"lease_ids": list(leases)}
    body = which | {name: value for name, value in fields.items() if value is not None}
    query = None if until_changed is None else {"until_changed": True}
    return _call("POST", _queue(queue, f"/{how}"), _read_settled, query, body, wait=until_changed, read_problem="lease-lost")


def ack(queue: str, leases: str | Sequence[str], *, hold: Duration | None = None, hold_scope: HoldScope = "queue") -> Call[list[Settled]]:
    """Acknowledges leases: their work is done. With `hold`, nothing of the queue, or of the groups of the leases, is delivered for that time, at most an
    hour."""
    return _settle_all(queue, "ack", leases, hold=hold_of(hold, hold_scope))


def done(queue: str, leases: str | Sequence[str], *, delay: Duration | None = None) -> Call[list[Settled]]:
    """Mode `keys`: ends leases and keeps the failure counts. With `delay`, the keys are added again after that time."""
    return _settle_all(queue, "done", leases, delay=None if delay is None else duration_text(delay))


def nack(
    queue: str,
    leases: str | Sequence[str],
    *,
    delay: Duration | None = None,
    floor: bool = False,
    error: str | None = None,
) -> Call[list[Settled]]:
    """Reports failures: the keys are delivered again after `delay` or, without it, after their backoff. With `floor`, a change does not shorten this
    wait."""
    wait = None if delay is None else duration_text(delay)
    return _settle_all(queue, "nack", leases, delay=wait, floor=floor or None, error=error)


def release(queue: str, leases: str | Sequence[str], *, hold: Duration | None = None, hold_scope: HoldScope = "queue") -> Call[list[Settled]]:
    """Ends leases without a failure: the keys are delivered again at once. With `hold`, nothing of the queue is delivered for that time, at most an hour."""
    return _settle_all(queue, "release", leases, hold=hold_of(hold, hold_scope))


def reject(queue: str, leases: str | Sequence[str], *, error: str | None = None) -> Call[list[Settled]]:
    """Ends leases and parks their keys. Except in mode `events`, a key with a newer change is delivered again instead."""
    return _settle_all(queue, "reject", leases, error=error)


def extend(queue: str, leases: str | Sequence[str], *, lease_duration: Duration | None = None, until_changed: Duration | None = None) -> Call[list[Settled]]:
    """Sets the deadline of leases to now + `lease_duration`. With `until_changed`, the reply comes at the first newer change of one of the keys, when one of
    the leases ends, or after this time."""
    duration = None if lease_duration is None else duration_text(lease_duration)
    return _settle_all(queue, "extend", leases, until_changed, lease_duration=duration)


def parked_errors(queue: str, *, limit: int | None = None, continue_: str | None = None) -> Call[Page[Json]]:
    """The errors of the parked keys, the most frequent ones first, with the number of keys of each, in pages."""
    return _call("GET", _queue(queue, "/parked/errors"), Page.reader(_document), {"limit": limit, "continue": continue_})


def _selection(keys: Sequence[str] | None, error: str | None, all: bool, expected_count: int | None) -> Json:
    if isinstance(keys, str):
        raise ValueError("expected a list of keys, not one")
    selections: Json = {"keys": None if keys is None else list(keys), "error": error, "all": all or None}
    body = {name: value for name, value in selections.items() if value is not None}
    if len(body) != 1:
        raise ValueError("expected keys, an error, or all=True, and only one of them")
    return body if expected_count is None else body | {"expected_count": expected_count}


def promote(queue: str, keys: Sequence[str] | None = None, *, error: str | None = None, all: bool = False, expected_count: int | None = None) -> Call[Json]:
    """Makes delayed keys ready before they are due: `keys`, the keys whose last error is `error` (empty: keys without an error), or all. The call is
    refused if it does not select exactly `expected_count` keys."""
    body = _selection(keys, error, all, expected_count)
    return _call("POST", _queue(queue, "/delayed/promote"), _document, None, body, counts_twice=True)


def redrive(queue: str, keys: Sequence[str] | None = None, *, error: str | None = None, all: bool = False, expected_count: int | None = None) -> Call[Json]:
    """Makes parked keys ready: `keys`, the keys whose last error is `error` (empty: keys without an error), or all. The call is refused if it does not
    select exactly `expected_count` keys."""
    body = _selection(keys, error, all, expected_count)
    return _call("POST", _queue(queue, "/parked/redrive"), _document, None, body, counts_twice=True)


def discard(queue: str, keys: Sequence[str] | None = None, *, error: str | None = None, all: bool = False, expected_count: int | None = None) -> Call[Json]:
    """Drops parked keys with their changes: `keys`, the keys whose last error is `error` (empty: keys without an error), or all. The call is refused if
    it does not select exactly `expected_count` keys."""
    body = _selection(keys, error, all, expected_count)
    return _call("POST", _queue(queue, "/parked/discard"), _document, None, body, counts_twice=True)


# Queues.


def _change(
    method: str,
    queue: str,
    values: QueueSettings | Json,
    *,
    force: bool,
    if_match: str | None,
    if_none_match: str | None = None,
) -> Call[Settings]:
    conditions = {"if-match": if_match, "if-none-match": if_none_match}
    headers = {name: value for name, value in conditions.items() if value is not None}
    # A repeat after a lost reply would be refused, although the first call was applied.
    return _call(
        method,
        _queue(queue),
        lambda tagged: Settings(tagged[0]["settings"], tagged[1]),
        {"force": force},
        values,
        counts_twice=bool(headers),
        headers=headers,
        is_tagged=True,
    )


def put_settings(
    queue: str,
    values: QueueSettings | Json | None = None,
    *,
    if_match: str | None = None,
    if_absent: bool = False,
    force: bool = False,
) -> Call[Settings]:
    """Creates the queue with these settings, or replaces all of its settings: a missing setting gets its default. With `if_match`, only if the
    settings have this ETag; with `if_absent`, only if the queue does not exist. With `force`, followers that the settings do not allow are detached;
    otherwise they refuse the call."""
    return _change("PUT", queue, values or {}, force=force, if_match=if_match, if_none_match="*" if if_absent else None)


def patch_settings(queue: str, values: QueueSettings | Json, *, if_match: str | None = None, force: bool = False) -> Call[Settings]:
    """Changes the named settings: None resets a setting, and objects are merged. With `if_match`, only if the settings have this ETag. With `force`,
    followers that the settings do not allow are detached; otherwise they refuse the call."""
    return _change("PATCH", queue, values, force=force, if_match=if_match)


def plan_settings(queue: str, values: QueueSettings | Json | None = None) -> Call[SettingsPlan]:
    """What `put_settings` with these settings would change. Nothing is changed."""
    return _call("POST", _queue(queue, "/settings/plan"), SettingsPlan.read, body=values or {})


def settings(queue: str) -> Call[Settings]:
    """The settings of the queue, as `put_settings` takes them."""
    return _call("GET", _queue(queue, "/settings"), lambda tagged: Settings(tagged[0], tagged[1]), is_tagged=True)


def get(queue: str) -> Call[QueueDocument]:
    """The queue document: settings and status."""
    return _call("GET", _queue(queue), QueueDocument.read)


def place(queue: str) -> Call[Place]:
    """The incarnation, the life and the newest version of the queue."""
    return _call("GET", _queue(queue), Place.read)


def status(queue: str) -> Call[Status]:
    """Counts and flags."""
    return _call("GET", _queue(queue, "/status"), Status.read)


def delete_queue(queue: str, *, force: bool = False) -> Call[None]:
    """Deletes the queue with all its contents. With `force`, its followers are detached; otherwise they refuse the call."""
    return _call("DELETE", _queue(queue), _nothing, {"force": force}, counts_twice=True)


def pause(queue: str) -> Call[QueueDocument]:
    """Stops delivery."""
    return _call("POST", _queue(queue, "/pause"), QueueDocument.read)


def pause_group(queue: str, group: str) -> Call[QueueDocument]:
    """Stops the delivery of a group. The empty name is that of the group without a name."""
    return _call("POST", _queue(queue, "/pause"), QueueDocument.read, {}, {"group": group})


def resume_group(queue: str, group: str) -> Call[QueueDocument]:
    """Resumes the delivery of a group, and ends its hold."""
    return _call("POST", _queue(queue, "/resume"), QueueDocument.read, {}, {"group": group})


def resume(queue: str) -> Call[QueueDocument]:
    """Resumes delivery."""
    return _call("POST", _queue(queue, "/resume"), QueueDocument.read)


def close(queue: str, *, at_once: bool = False, drain: bool = False, wait: Duration | None = None) -> Call[QueueDocument]:
    """Closes the queue: pops drain it, and then get 410 `queue-closed`. With `at_once`, they get it as soon as no key is ready; otherwise they also wait
    for delayed and leased keys. With `drain`, the call waits, for at most `wait`, until the queue is drained."""
    query = {"wait_for": "none" if at_once else None, "drain": drain}
    return _call("POST", _queue(queue, "/close"), QueueDocument.read, query, wait=wait)


def reopen(queue: str) -> Call[QueueDocument]:
    """Opens a closed queue again."""
    return _call("POST", _queue(queue, "/reopen"), QueueDocument.read)


def test_push(queue: str) -> Call[PushTest]:
    """Sends a test request to the endpoint to which the queue pushes. What the endpoint answers is no error."""
    return _call("POST", _queue(queue, "/push/test"), PushTest.read)


def purge(queue: str) -> Call[Json]:
    """Drops ready and delayed keys, and changes that arrived during a lease."""
    return _call("POST", _queue(queue, "/purge"), _document, counts_twice=True)


# Reading.


def items(
    queue: str,
    *,
    state: str | None = None,
    worker: str | None = None,
    prefix: str | None = None,
    source: str | None = None,
    error: str | None = None,
    key: str | None = None,
    with_diff: bool = False,
    limit: int | None = None,
    continue_: str | None = None,
) -> Call[Page[ListedItem]]:
    """Ready, delayed, leased and parked keys, in pages. `state` selects some of these states, and `error` the keys whose last error it is (empty: keys
    without an error). With `with_diff`, they have the difference from the object that was acknowledged last to the newest one."""
    query = {"state": state, "worker": worker, "prefix": prefix, "source": source, "error": error, "key": key, "limit": limit, "continue": continue_}
    query["with"] = "diff" if with_diff else None
    return _call("GET", _queue(queue, "/items"), Page.reader(ListedItem.read), query)


def item(queue: str, key: str, *, with_diff: bool = False) -> Call[ListedItem]:
    """One key. With `with_diff`, it has the difference from the object that was acknowledged last to the newest one."""
    check_key(key)
    return _call("GET", _queue(queue, "/item"), ListedItem.read, {"key": key, "with": "diff" if with_diff else None})


def explain(queue: str, key: str) -> Call[Json]:
    """Why a key is not delivered."""
    check_key(key)
    return _call("GET", _queue(queue, "/explain"), _document, {"key": key})


def _view(queue: str, view: str, query: Mapping[str, object], wait: Duration | None = None) -> Call[Page[ViewObject]]:
    return _call("GET", _queue(queue, f"/{view}"), Page.reader(ViewObject.read), query, wait=wait)


def latest(
    queue: str,
    *,
    prefix: str | None = None,
    source: str | None = None,
    shard: str | None = None,
    fields: str | None = None,
    limit: int | None = None,
    continue_: str | None = None,
) -> Call[Page[ViewObject]]:
    """The newest accepted objects, in pages."""
    query = {"prefix": prefix, "source": source, "shard": shard, "fields": fields, "limit": limit, "continue": continue_}
    return _view(queue, "latest", query)


def known(
    queue: str,
    *,
    prefix: str | None = None,
    source: str | None = None,
    shard: str | None = None,
    fields: str | None = None,
    index: str | None = None,
    value: str | None = None,
    limit: int | None = None,
    continue_: str | None = None,
    wait: Duration | None = None,
) -> Call[Page[ViewObject]]:
    """The acknowledged objects, in pages. With `index` and `value`, only the objects that have this value in the index."""
    query = {"prefix": prefix, "source": source, "shard": shard, "fields": fields, "index": index, "value": value}
    return _view(queue, "known", query | {"limit": limit, "continue": continue_}, wait)


def _object(queue: str, view: str, key: str, min_resource_version: int | None) -> Call[TaggedObject]:
    check_key(key)
    query = {"view": view, "key": key, "min_resource_version": min_resource_version}
    return _call("GET", _queue(queue, "/object"), lambda tagged: TaggedObject.tagged(*tagged), query, is_tagged=True)


def latest_object(queue: str, key: str, *, min_resource_version: int | None = None) -> Call[TaggedObject]:
    """The newest accepted object of a key, with the ETag for `if_match` of a change. The call
    is refused if the queue does not have the version `min_resource_version`."""
    return _object(queue, "latest", key, min_resource_version)


def known_object(queue: str, key: str, *, min_resource_version: int | None = None) -> Call[TaggedObject]:
    """The acknowledged object of a key. The call is refused if the queue does not have the version `min_resource_version`."""
    return _object(queue, "known", key, min_resource_version)


def history(queue: str, key: str, *, limit: int | None = None, continue_: str | None = None) -> Call[Page[Json]]:
    """The events of a key, newest first, in pages."""
    check_key(key)
    query = {"key": key, "limit": limit, "continue": continue_}
    return _call("GET", _queue(queue, "/history"), Page.reader(_document), query)


def sources(queue: str, *, limit: int | None = None, continue_: str | None = None) -> Call[Page[Json]]:
    """The sources that own keys, have made calls or have a problem, in pages."""
    return _call("GET", _queue(queue, "/sources"), Page.reader(_document), {"limit": limit, "continue": continue_})


def workers(queue: str, *, limit: int | None = None, continue_: str | None = None) -> Call[Page[Json]]:
    """The workers that hold leases or wait for keys, in pages."""
    return _call("GET", _queue(queue, "/workers"), Page.reader(_document), {"limit": limit, "continue": continue_})


def groups(queue: str, *, sort: str | None = None) -> Call[Json]:
    """The first 20 groups of keys that take turns. `sort` is `wait`, `ready` or `leased`."""
    return _call("GET", _queue(queue, "/groups"), _document, {"sort": sort})


def indexes(queue: str) -> Call[Page[Json]]:
    """The indexes of the queue."""
    return _call("GET", _queue(queue, "/indexes"), Page.reader(_document))


def index_values(
    queue: str,
    index: str,
    *,
    prefix: str | None = None,
    limit: int | None = None,
    continue_: str | None = None,
    wait: Duration | None = None,
) -> Call[Page[Json]]:
    """The values of an index, with the number of keys of each, in pages. `wait` is how long the call waits for an index that is being built."""
    query = {"prefix": prefix, "limit": limit, "continue": continue_}
    return _call("GET", _queue(queue, f"/indexes/{_segment(index)}"), Page.reader(_document), query, wait=wait)


def synced(queue: str, *, resource_version: int | str | None = None, wait: Duration | None = None) -> Call[Synced]:
    """Whether the initial list is processed or, with `resource_version`, every change up to that version is acknowledged."""
    return _call("GET", _queue(queue, "/synced"), Synced.read, {"resource_version": resource_version}, wait=wait)


def watch(
    queue: str,
    *,
    view: str = "latest",
    resource_version: int | str = 0,
    prefix: str | None = None,
    shard: str | None = None,
    bookmark: Duration | None = None,
) -> Call[None]:
    """The changes of a view as a stream of rows."""
    query = {"view": view, "resource_version": resource_version, "prefix": prefix, "shard": shard}
    bookmark_text = None if bookmark is None else duration_text(bookmark)
    return _call("GET", _queue(queue, "/watch"), _nothing, query | {"bookmark": bookmark_text})


# The server.


def queues(*, prefix: str | None = None, limit: int | None = None, continue_: str | None = None) -> Call[Page[QueueDocument]]:
    """The queues, in pages."""
    query = {"prefix": prefix, "limit": limit, "continue": continue_}
    return _call("GET", "/v1/queues", Page.reader(QueueDocument.read), query)


def info() -> Call[Json]:
    """Version, durability, limits and uptime of the server."""
    return _call("GET", "/v1/info", _document)


def nodes() -> Call[Json]:
    """The nodes that share the database of the server; none for a single server."""
    return _call("GET", "/v1/nodes", _document)
