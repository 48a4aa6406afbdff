"""The client for asyncio, on httpx."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from .. import calls
from ..arguments import check_text
from ..calls import Call
from ..durations import Duration
from ..errors import ConnectionLost, Error
from ..json import Codec, Json
from ..middleware import AsyncSend, wrap
from ..models import Page, QueueDocument
from ..outage import Outage, incomplete, unreachable
from ..protocol import Reply, is_undone_here, read_problem, read_reply
from ..retry import Attempts, RetryOptions
from ..servers import ALIVE_SECONDS_MAX, ALIVE_TARGET, CONNECT_SECONDS_MAX, SILENCE_SECONDS, Servers
from ..signatures import show_as_method
from ..token import Token, TokenSource
from ..watching import silence_seconds

P = ParamSpec("P")
T = TypeVar("T")


class Client:
    """A deltaq server. Tasks share one client, which keeps connections open. Close it, or use it in an `async with` block.

    `url` may be the URLs of several nodes of one cluster, with commas between them: if a node can't be reached, the client goes on at the next one.

    `token_file` is a file with the token. It is read again when the server refuses the token (401). `token_source` is a function or a coroutine that
    returns the token of each attempt. `reply_timeout` limits the time of an attempt, in seconds, without the time for which the server was asked to wait.
    `parse_float` converts the numbers in objects that are not integers: `decimal.Decimal` keeps all of their digits.

    `middleware` are functions around each call with its repeats: each takes a coroutine function that makes a call, and returns one that takes its place. The
    first is the outermost. Streams, such as a watch, have none.
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
        middleware: Sequence[Callable[[AsyncSend], AsyncSend]] = (),
    ) -> None:
        self.retry = retry or RetryOptions()
        self.codec = Codec(parse_float)
        make: AsyncSend = _make
        self._invoke = wrap(make, middleware) if middleware else None
        self._timeout = reply_timeout
        self._servers = Servers(url)
        self.outage = Outage(self._servers.urls)
        self._http = httpx.AsyncClient(
            headers={"accept": "application/json", "accept-encoding": "identity"},
            auth=_Authorized(Token(token, token_file, token_source)),
            timeout=reply_timeout,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=60.0),
            verify=ssl_context or True,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes all connections."""
        await self._http.aclose()

    def queue(self, name: str) -> Queue:
        """The calls of one queue, which may not exist yet."""
        return Queue(self, name)

    async def queues(self, *, prefix: str | None = None, limit: int | None = None, continue_: str | None = None) -> Page[QueueDocument]:
        """The queues, in pages."""
        page = await self.send(calls.queues(prefix=prefix, limit=limit, continue_=continue_))
        return replace(page, _fetch_async=lambda token: self.queues(prefix=prefix, limit=limit, continue_=token))

    async def info(self) -> Json:
        """Version, durability, limits and uptime of the server."""
        return await self.send(calls.info())

    async def nodes(self) -> Json:
        """The nodes that share the database of the server; none for a single server."""
        return await self.send(calls.nodes())

    async def send(self, call: Call[T], *, attempts: Attempts | None = None) -> T:
        """Sends a call, and repeats it after a retryable error: as `retry` says. `attempts` replaces these rules."""
        return await self._within(call, lambda call: self._send(call, attempts or Attempts(self.retry)))

    async def send_once(self, call: Call[T], *, timeout: float | None = None) -> T:
        """Sends a call once. `timeout` applies if it is shorter than the `reply_timeout` of the client."""
        return await self._within(call, lambda call: self._attempt(call, timeout))

    async def _within(self, call: Call[T], send: Callable[[Call[T]], Awaitable[T]]) -> T:
        """Sends a call inside the middleware."""
        if self._invoke is None:
            return await send(call)
        reply: T = await self._invoke(replace(call, send=send))
        return reply

    async def _send(self, call: Call[T], attempts: Attempts) -> T:
        while True:
            attempts.begins()
            try:
                return await self._attempt(call)
            except Error as error:
                wait = attempts.wait_after(error)
                if wait is None or (call.counts_twice and error.is_outcome_unknown):
                    raise
                self.outage.repeats(error, call, attempts)
            await asyncio.sleep(wait)

    async def _attempt(self, call: Call[T], timeout: float | None = None) -> T:
        headers = dict(call.headers) if call.body is None else {"content-type": call.content_type, **call.headers}
        seconds = self._timeout if timeout is None else min(self._timeout, timeout)
        timeouts = self._timeouts(seconds, seconds + call.wait)
        others = len(self._servers.urls) - 1
        while True:
            index = self._servers.next(call.target)
            request = self._request(call.method, index, call.target, timeouts, content=call.body, headers=headers)
            try:
                answer = await self._answer(index, self._http.send(request))
            except ConnectionLost as lost:
                self._servers.leave(index, call.target)
                if lost.was_sent or others == 0:
                    raise
            else:
                self._servers.answered(index, call.target, answer.status_code, answer.headers.get("deltaq-owner"))
                reply = Reply.of(answer.status_code, answer.headers.get, answer.content)
                if not self._is_undone_here(index, call, reply) or others == 0:
                    if reply.status < 500:
                        self.outage.answered()
                    return read_reply(self.codec, call, reply)
            others -= 1

    def _request(self, method: str, index: int, target: str, timeout: httpx.Timeout | float, **more: Any) -> httpx.Request:
        request = self._http.build_request(method, self._servers.urls[index] + target, timeout=timeout, **more)
        request.url = _Url(request.url)
        return request

    def _is_undone_here(self, index: int, call: Call[Any], reply: Reply) -> bool:
        is_undone = is_undone_here(reply)
        if is_undone:
            self._servers.leave(index, call.target)
        return is_undone

    async def _answer(self, index: int, waiting: Coroutine[Any, Any, T]) -> T:
        """What a server sends. If there are others, a server that no longer answers is not waited for."""
        try:
            if not self._servers.are_several:
                return await waiting
            task = asyncio.ensure_future(waiting)
            try:
                while not (await asyncio.wait({task}, timeout=SILENCE_SECONDS))[0]:
                    if not await self._is_alive(index) and not task.done():
                        raise ConnectionLost(f"nothing comes from {self._servers.urls[index]}")
                return task.result()
            finally:
                if not task.done():
                    task.cancel()
                    await asyncio.wait({task})
        except (httpx.HTTPError, httpx.StreamError) as error:
            url = self._servers.urls[index]
            raise (unreachable if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)) else incomplete)(url, error) from error

    async def _is_alive(self, index: int) -> bool:
        try:
            await self._http.send(self._request("GET", index, ALIVE_TARGET, ALIVE_SECONDS_MAX), auth=None)
        except (httpx.HTTPError, httpx.StreamError):
            return False
        return True

    def _timeouts(self, seconds: float, read: float) -> httpx.Timeout:
        connect = min(seconds, CONNECT_SECONDS_MAX) if self._servers.are_several else seconds
        return httpx.Timeout(seconds, connect=connect, read=read)

    async def rows(self, call: Call[None], bookmark: Duration | None) -> AsyncIterator[Json]:
        """The rows of one watch, until its stream ends."""
        timeout = self._timeouts(self._timeout, silence_seconds(bookmark))
        index, reply = await self._stream(call, timeout)
        try:
            # `aiter_lines` would also split at separators that a JSON string may contain, such as U+2028.
            parts, rest = reply.aiter_raw(), b""
            while part := await self._answer(index, _next(parts)):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    yield self.codec.load(line)
            if rest:
                raise ConnectionLost("the stream ended in the middle of a line")
        except ConnectionLost:
            self._servers.leave(index, call.target)
            raise
        finally:
            await reply.aclose()

    async def _stream(self, call: Call[None], timeout: httpx.Timeout) -> tuple[int, httpx.Response]:
        """Begins a stream, and returns the index of its server."""
        others = len(self._servers.urls) - 1
        while True:
            index = self._servers.next(call.target)
            request = self._request(call.method, index, call.target, timeout, headers={"accept": "application/x-ndjson"})
            try:
                answer = await self._answer(index, self._http.send(request, stream=True))
                self._servers.answered(index, call.target, answer.status_code, answer.headers.get("deltaq-owner"))
                if answer.status_code < 500:
                    self.outage.answered()
                if answer.status_code == 200:
                    return index, answer
                try:
                    reply = Reply.of(answer.status_code, answer.headers.get, await self._answer(index, answer.aread()))
                finally:
                    await answer.aclose()
                if not self._is_undone_here(index, call, reply) or others == 0:
                    raise read_problem(self.codec, reply)
            except ConnectionLost as lost:
                self._servers.leave(index, call.target)
                if lost.was_sent or others == 0:
                    raise
            others -= 1


async def _make(call: Call[Any]) -> Any:
    """What all middleware is around."""
    assert call.send is not None
    return await call.send(call)


async def _next(parts: AsyncIterator[bytes]) -> bytes:
    """The next part that is not empty; empty at the end."""
    async for part in parts:
        if part:
            return part
    return b""


class _Url(httpx.URL):
    """The URL of a request of this client."""


class _Others(logging.Filter):
    """Keeps the requests of this client out of the log of httpx: their URLs have the ids of pops, which are secrets. Other requests stay in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (isinstance(record.args, tuple) and any(isinstance(each, _Url) for each in record.args))


logging.getLogger("httpx").addFilter(_Others())


class _Authorized(httpx.Auth):
    """Sends the token. A request that is refused is sent again if the token has been replaced."""

    def __init__(self, token: Token) -> None:
        self._token = token

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        header = await self._token.header_async()
        _authorize(request, header)
        reply = yield request
        if reply.status_code == 401:
            self._token.refresh()
            replaced = await self._token.header_async()
            if replaced != header:
                _authorize(request, replaced)
                yield request


def _authorize(request: httpx.Request, header: str | None) -> None:
    if header is not None:
        request.headers["authorization"] = header


def _method(build: Callable[Concatenate[str, P], Call[T]]) -> Callable[Concatenate[Queue, P], Coroutine[Any, Any, T]]:
    """Makes a method of `Queue` from a function that builds a call. The method has the same parameters, except `queue`."""

    async def send(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> T:
        reply: Any = await self.client.send(build(self.name, *args, **kwargs))
        if isinstance(reply, Page):
            # mypy does not know that each list has the parameter.
            following: Any = functools.partial(send, self, *args)
            reply = replace(reply, _fetch_async=lambda token: following(**(kwargs | {"continue_": token})))
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
