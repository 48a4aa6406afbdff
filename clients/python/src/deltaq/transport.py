"""HTTP over http.client: a pool of kept-alive connections, and calls that another thread can cancel."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from .calls import Call
from .errors import Cancelled, ConnectionLost
from .outage import Outage, incomplete, unreachable
from .protocol import Reply, is_undone_here
from .servers import ALIVE_SECONDS_MAX, ALIVE_TARGET, CONNECT_SECONDS_MAX, Servers
from .token import Token
from .watchdog import Watchdog, shut_down

R = TypeVar("R")

#: Kept-alive connections that are idle for longer are not used: the server closes idle connections after two minutes.
IDLE_SECONDS_MAX = 60.0


class Cancel:
    """Lets one thread cancel the calls and waits of another thread."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        with self._lock:
            self._event.set()
            for connected in self._sockets:
                shut_down(connected)

    def wait(self, seconds: float) -> bool:
        """Waits, and returns whether the wait was cancelled."""
        return self._event.wait(seconds)

    @contextmanager
    def covers(self, connected: socket.socket) -> Iterator[None]:
        """Within this block, `set` ends reads and writes of the socket."""
        with self._lock:
            if self._event.is_set():
                raise Cancelled("the call was cancelled")
            self._sockets.add(connected)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(connected)


class Stream:
    """A reply that is read line by line."""

    def __init__(self, response: http.client.HTTPResponse, exchange: _Exchange) -> None:
        self._response = response
        self._exchange = exchange

    def lines(self) -> Iterator[bytes]:
        try:
            with self._exchange.covers():
                while line := self._response.readline():
                    if not line.endswith(b"\n"):
                        raise ConnectionLost("the stream ended in the middle of a line")
                    yield line
        except (OSError, http.client.HTTPException) as error:
            raise self._exchange.lost(error) from error
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()
        self._exchange.connected.close()


class _Server:
    """One server, with its idle connections."""

    def __init__(self, url: str, ssl_context: ssl.SSLContext | None, *, is_single: bool) -> None:
        #: The URL.
        self.url = url
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._prefix = parts.path
        self._ssl = None
        if parts.scheme == "https":
            self._ssl = ssl_context or ssl.create_default_context()
        self._lock = threading.Lock()
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._connect_seconds_max = float("inf") if is_single else CONNECT_SECONDS_MAX
        self._watchdog = None if is_single else Watchdog(self._is_alive)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """A connection that is open."""
        oldest = time.monotonic() - IDLE_SECONDS_MAX
        while True:
            with self._lock:
                if not self._idle:
                    break
                since, connection = self._idle.pop()
            # An idle connection becomes readable when the server closes it.
            if since > oldest and not _is_readable(connection.sock):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        return self._connect(timeout)

    def keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        seconds = min(timeout, self._connect_seconds_max)
        connection: http.client.HTTPConnection
        if self._ssl is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=self._ssl)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise unreachable(self.url, error) from error
        connection.sock.settimeout(timeout)
        return connection

    def send(self, connection: http.client.HTTPConnection, call: Call[object], headers: dict[str, str]) -> http.client.HTTPResponse:
        sent = call.headers | headers
        if call.body is not None:
            sent["content-type"] = call.content_type
        connection.request(call.method, self._prefix + call.target, call.body, sent)
        response = connection.getresponse()
        if self._watchdog is not None:
            self._watchdog.heard()
        return response

    def covers(self, connected: socket.socket) -> AbstractContextManager[None]:
        """Within this block, reads of the socket end when this server no longer answers and there are others."""
        return nullcontext() if self._watchdog is None else self._watchdog.covers(connected)

    def _is_alive(self) -> bool:
        try:
            connection = self._connect(ALIVE_SECONDS_MAX)
        except ConnectionLost:
            return False
        try:
            connection.request("GET", self._prefix + ALIVE_TARGET)
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True


@dataclass(frozen=True)
class _Exchange:
    """A call that is sent to a server on a connection."""

    server: _Server
    connected: socket.socket
    cancel: Cancel
    #: Records that the call has failed at this server.
    leave: Callable[[], None]

    @contextmanager
    def covers(self) -> Iterator[None]:
        try:
            with self.cancel.covers(self.connected), self.server.covers(self.connected):
                yield
        except ConnectionLost:
            self.leave()
            raise

    def lost(self, error: Exception) -> ConnectionLost | Cancelled:
        if self.cancel.is_set:
            return Cancelled("the call was cancelled")
        self.leave()
        return incomplete(self.server.url, error)


class Transport:
    """Sends requests to a server, or to the nodes of one cluster. Threads share it."""

    def __init__(self, url: str, *, token: Token, timeout: float, ssl_context: ssl.SSLContext | None) -> None:
        self._choice = Servers(url)
        self._servers = [_Server(each, ssl_context, is_single=not self._choice.are_several) for each in self._choice.urls]
        self._timeout = timeout
        self._token = token
        #: Logs that calls are repeated because no server answers.
        self.outage = Outage(self._choice.urls)

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def request(self, call: Call[object], cancel: Cancel | None = None, timeout: float | None = None) -> Reply:
        seconds = self._timeout if timeout is None else min(self._timeout, timeout)
        return self._anywhere(lambda headers: self._request(call, headers, seconds, cancel or Cancel()))

    def stream(self, call: Call[object], silence: float, cancel: Cancel) -> Stream | Reply:
        """Opens a stream of lines. The stream ends with an error after `silence` seconds without a byte. A refusal is returned as a `Reply`."""
        return self._anywhere(lambda headers: self._stream(call, headers, silence, cancel))

    def _anywhere(self, send: Callable[[dict[str, str]], R]) -> R:
        """Sends a request. If a server has done nothing, for a reason that another one need not have, sends it to the next one."""
        for _ in self._servers[1:]:
            reply = self._authorized(send)
            if not (isinstance(reply, Reply) and is_undone_here(reply)):
                return reply
        return self._authorized(send)

    def _authorized(self, send: Callable[[dict[str, str]], R]) -> R:
        """Sends a request with the token. If the server refuses it and the token has been replaced, sends the request again."""
        header = self._token.header()
        reply = send(_authorization(header))
        if isinstance(reply, Reply) and reply.status == 401:
            self._token.refresh()
            replaced = self._token.header()
            if replaced != header:
                return send(_authorization(replaced))
        return reply

    def _request(self, call: Call[object], headers: dict[str, str], seconds: float, cancel: Cancel) -> Reply:
        index, connection = self._connect(call.target, seconds)
        connection.sock.settimeout(seconds + call.wait)
        exchange = self._exchange(index, call, connection, cancel)
        is_reusable = False
        try:
            with exchange.covers():
                response = self._send(index, connection, call, {"accept": "application/json"} | headers)
                body = response.read()
            is_reusable = not response.will_close
            return self._answered(index, call, Reply.of(response.status, response.getheader, body))
        except (OSError, http.client.HTTPException) as error:
            raise exchange.lost(error) from error
        finally:
            if is_reusable:
                self._servers[index].keep(connection)
            else:
                connection.close()

    def _stream(self, call: Call[object], headers: dict[str, str], silence: float, cancel: Cancel) -> Stream | Reply:
        index, connection = self._connect(call.target, self._timeout)
        # If the reply closes the connection, the connection has no socket any more; the stream still reads from this socket.
        exchange = self._exchange(index, call, connection, cancel)
        try:
            with exchange.covers():
                response = self._send(index, connection, call, {"accept": "application/x-ndjson"} | headers)
                if response.status == 200:
                    exchange.connected.settimeout(silence)
                    return Stream(response, exchange)
                reply = self._answered(index, call, Reply.of(response.status, response.getheader, response.read()))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise exchange.lost(error) from error
        except Cancelled:
            connection.close()
            raise
        connection.close()
        return reply

    def _exchange(self, index: int, call: Call[object], connection: http.client.HTTPConnection, cancel: Cancel) -> _Exchange:
        return _Exchange(self._servers[index], connection.sock, cancel, lambda: self._choice.leave(index, call.target))

    def _send(self, index: int, connection: http.client.HTTPConnection, call: Call[object], headers: dict[str, str]) -> http.client.HTTPResponse:
        response = self._servers[index].send(connection, call, headers)
        self._choice.answered(index, call.target, response.status, response.getheader("deltaq-owner"))
        return response

    def _answered(self, index: int, call: Call[object], reply: Reply) -> Reply:
        if is_undone_here(reply):
            self._choice.leave(index, call.target)
        return reply

    def _connect(self, target: str, timeout: float) -> tuple[int, http.client.HTTPConnection]:
        """An open connection to the server of the call or, if that can't be reached, to another one."""
        others = len(self._servers) - 1
        while True:
            index = self._choice.next(target)
            try:
                return index, self._servers[index].connection(timeout)
            except ConnectionLost:
                self._choice.leave(index, target)
                if others == 0:
                    raise
                others -= 1


def _authorization(header: str | None) -> dict[str, str]:
    return {} if header is None else {"authorization": header}


def _is_readable(connected: socket.socket) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        return bool(poll.poll(0))
    # Windows has no `poll`. Its `select` accepts any descriptor; on Unix, `select` accepts only the first 1,024.
    return bool(select.select([connected], [], [], 0)[0])
