"""The client, on the standard library alone."""

from __future__ import annotations

import functools
import os
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from . import calls
from .arguments import check_text
from .calls import Call
from .durations import Duration
from .errors import Cancelled, Error
from .json import Codec, Json
from .middleware import Send, wrap
from .models import Page, QueueDocument
from .protocol import Reply, read_problem, read_reply
from .retry import Attempts, RetryOptions
from .signatures import show_as_method
from .token import Token, TokenSource
from .transport import Cancel, Transport
from .watching import silence_seconds

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A deltaq server. Threads share one client, which keeps connections open. Close it, or use it in a `with` block.

    `url` may be the URLs of several nodes of one cluster, with commas between them: if a node can't be reached, the client goes on at the next one.

    `token_file` is a file with the token. It is read again when the server refuses the token (401). `token_source` is a function that
    returns the token of each attempt. `reply_timeout` limits the time of an attempt, in seconds, without the time for which the server was asked to wait.
    `parse_float` converts the numbers in objects that are not integers: `decimal.Decimal` keeps all of their digits.

    `middleware` are functions around each call with its repeats: each takes a function that makes a call, and returns one that takes its place. The first is
    the outermost. Streams, such as a watch, have none.
    """

    def __init__(
        self,
        url: str = "http://localhost:7070",
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        token_source: TokenSource | None = None,
        reply_timeout: float = 60.0,
        retry: RetryOptions | None = None,
        ssl_context: ssl.SSLContext | None = None,
        parse_float: Callable[[str], Any] | None = None,
        middleware: Sequence[Callable[[Send], Send]] = (),
    ) -> None:
        self.retry = retry or RetryOptions()
        self.codec = Codec(parse_float)
        make: Send = _make
        self._invoke = wrap(make, middleware) if middleware else None
        self._transport = Transport(url, token=Token(token, token_file, token_source), timeout=reply_timeout, ssl_context=ssl_context)
        self.outage = self._transport.outage

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the idle connections."""
        self._transport.close()

    def queue(self, name: str) -> Queue:
        """The calls of one queue, which may not exist yet."""
        return Queue(self, name)

    def queues(self, *, prefix: str | None = None, limit: int | None = None, continue_: str | None = None) -> Page[QueueDocument]:
        """The queues, in pages."""
        page = self.send(calls.queues(prefix=prefix, limit=limit, continue_=continue_))
        return replace(page, _fetch=lambda token: self.queues(prefix=prefix, limit=limit, continue_=token))

    def info(self) -> Json:
        """Version, durability, limits and uptime of the server."""
        return self.send(calls.info())

    def nodes(self) -> Json:
        """The nodes that share the database of the server; none for a single server."""
        return self.send(calls.nodes())

    def send(self, call: Call[T], *, cancel: Cancel | None = None, attempts: Attempts | None = None) -> T:
        """Sends a call, and repeats it after a retryable error: as `retry` says. `attempts` replaces these rules."""
        return self._within(call, lambda call: self._send(call, cancel, attempts or Attempts(self.retry)))

    def send_once(self, call: Call[T], *, cancel: Cancel | None = None, timeout: float | None = None) -> T:
        """Sends a call once. `timeout` applies if it is shorter than the `reply_timeout` of the client."""
        return self._within(call, lambda call: self._attempt(call, cancel, timeout))

    def _within(self, call: Call[T], send: Callable[[Call[T]], T]) -> T:
        """Sends a call inside the middleware."""
        if self._invoke is None:
            return send(call)
        reply: T = self._invoke(replace(call, send=send))
        return reply

    def _send(self, call: Call[T], cancel: Cancel | None, attempts: Attempts) -> T:
        while True:
            attempts.begins()
            try:
                return self._attempt(call, cancel)
            except Error as error:
                wait = attempts.wait_after(error)
                if wait is None or (call.counts_twice and error.is_outcome_unknown):
                    raise
                self.outage.repeats(error, call, attempts)
            pause(wait, cancel)

    def _attempt(self, call: Call[T], cancel: Cancel | None, timeout: float | None = None) -> T:
        reply = self._transport.request(call, cancel, timeout)
        if reply.status < 500:
            self.outage.answered()
        return read_reply(self.codec, call, reply)

    def rows(self, call: Call[None], cancel: Cancel, bookmark: Duration | None) -> Iterator[Json]:
        """The rows of one watch, until its stream ends."""
        stream = self._transport.stream(call, silence_seconds(bookmark), cancel)
        if not isinstance(stream, Reply) or stream.status < 500:
            self.outage.answered()
        if isinstance(stream, Reply):
            raise read_problem(self.codec, stream)
        for line in stream.lines():
            yield self.codec.load(line)


def _make(call: Call[Any]) -> Any:
    """What all middleware is around."""
    assert call.send is not None
    return call.send(call)


def pause(seconds: float, cancel: Cancel | None) -> None:
    if cancel is None:
        time.sleep(seconds)
    elif cancel.wait(seconds):
        raise Cancelled("the call was cancelled")


def _method(build: Callable[Concatenate[str, P], Call[T]]) -> Callable[Concatenate[Queue, P], T]:
    """Makes a method of `Queue` from a function that builds a call. The method has the same parameters, except `queue`."""

    def send(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        reply: Any = self.client.send(build(self.name, *args, **kwargs))
        if isinstance(reply, Page):
            # mypy does not know that each list has the parameter.
            following: Any = functools.partial(send, self, *args)
            reply = replace(reply, _fetch=lambda token: following(**(kwargs | {"continue_": token})))
        result: T = reply
        return result

    show_as_method(send, build)
    return send


class Queue:
    """The calls of one queue."""

    def __init__(self, client: Client, name: str) -> None:
        check_text(name, "the name of the queue")
        self.client = client
        self.name = name

    add = _method(calls.add)
    add_key = _method(calls.add_key)
    update = _method(calls.update)
    delete = _method(calls.delete)
    delete_key = _method(calls.delete_key)
    replace = _method(calls.replace)
    deltas = _method(calls.deltas)
    resync = _method(calls.resync)
    seed = _method(calls.seed)
    forget = _method(calls.forget)
    report_source = _method(calls.report_source)
    seen_source = _method(calls.seen_source)
    set_stale_after = _method(calls.set_stale_after)
    renumber_source = _method(calls.renumber_source)
    pop = _method(calls.pop)
    settle = _method(calls.settle)
    ack = _method(calls.ack)
    done = _method(calls.done)
    nack = _method(calls.nack)
    release = _method(calls.release)
    reject = _method(calls.reject)
    extend = _method(calls.extend)
    parked_errors = _method(calls.parked_errors)
    promote = _method(calls.promote)
    redrive = _method(calls.redrive)
    discard = _method(calls.discard)
    put_settings = _method(calls.put_settings)
    patch_settings = _method(calls.patch_settings)
    plan_settings = _method(calls.plan_settings)
    settings = _method(calls.settings)
    get = _method(calls.get)
    status = _method(calls.status)
    delete_queue = _method(calls.delete_queue)
    pause = _method(calls.pause)
    pause_group = _method(calls.pause_group)
    resume_group = _method(calls.resume_group)
    resume = _method(calls.resume)
    close = _method(calls.close)
    reopen = _method(calls.reopen)
    purge = _method(calls.purge)
    test_push = _method(calls.test_push)
    items = _method(calls.items)
    item = _method(calls.item)
    explain = _method(calls.explain)
    latest = _method(calls.latest)
    known = _method(calls.known)
    latest_object = _method(calls.latest_object)
    known_object = _method(calls.known_object)
    history = _method(calls.history)
    sources = _method(calls.sources)
    workers = _method(calls.workers)
    groups = _method(calls.groups)
    indexes = _method(calls.indexes)
    index_values = _method(calls.index_values)
    synced = _method(calls.synced)
