"""HTTP over http.client: a pool of kept-alive connections, and calls that another thread can cancel."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from urllib.parse import urlsplit

from .calls import Call
from .errors import Cancelled, ConnectionLost
from .protocol import Reply
from .token import Token

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
                _shut_down(connected)

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


def _shut_down(connected: socket.socket) -> None:
    with suppress(OSError):
        # The method of the plain socket: `SSLSocket.shutdown` would change the state of the object while another thread reads from it.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


class Stream:
    """A reply that is read line by line."""

    def __init__(self, connected: socket.socket, response: http.client.HTTPResponse, cancel: Cancel) -> None:
        self._connected = connected
        self._response = response
        self._cancel = cancel

    def lines(self) -> Iterator[bytes]:
        try:
            with self._cancel.covers(self._connected):
                while line := self._response.readline():
                    if not line.endswith(b"\n"):
                        raise ConnectionLost("the stream ended in the middle of a line")
                    yield line
        except (OSError, http.client.HTTPException) as error:
            raise _lost(error, self._cancel) from error
        finally:
            self.close()

    def close(self) -> None:
        self._response.close()
        self._connected.close()


class Transport:
    """Sends requests to one server. Threads share it."""

    def __init__(self, url: str, *, token: Token, timeout: float, ssl_context: ssl.SSLContext | None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not the URL of a server, such as http://localhost:7070")
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._timeout = timeout
        self._ssl = None
        if parts.scheme == "https":
            self._ssl = ssl_context or ssl.create_default_context()
        self._token = token
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def request(self, call: Call[object], cancel: Cancel | None = None, timeout: float | None = None) -> Reply:
        seconds = self._timeout if timeout is None else min(self._timeout, timeout)
        return self._authorized(lambda headers: self._request(call, headers, seconds, cancel or Cancel()))

    def stream(self, call: Call[object], silence: float, cancel: Cancel) -> Stream | Reply:
        """Opens a stream of lines. The stream ends with an error after `silence` seconds without a byte. A refusal is returned as a `Reply`."""
        return self._authorized(lambda headers: self._stream(call, headers, silence, cancel))

    def _authorized(self, send: Callable[[dict[str, str]], R]) -> R:
        """Sends a request with the token. If the server refuses it and the token has been replaced, sends the request again."""
        header = self._token.header
        reply = send({} if header is None else {"authorization": header})
        if isinstance(reply, Reply) and reply.status == 401 and self._token.is_replaced(header):
            return send({"authorization": self._token.header or ""})
        return reply

    def _request(self, call: Call[object], headers: dict[str, str], seconds: float, cancel: Cancel) -> Reply:
        connection = self._connection(seconds)
        connection.sock.settimeout(seconds + call.wait)
        is_reusable = False
        try:
            with cancel.covers(connection.sock):
                response = self._send(connection, call, {"accept": "application/json"} | headers)
                body = response.read()
            is_reusable = not response.will_close
            return Reply.of(response.status, response.getheader, body)
        except (OSError, http.client.HTTPException) as error:
            raise _lost(error, cancel) from error
        finally:
            if is_reusable:
                with self._lock:
                    self._idle.append((time.monotonic(), connection))
            else:
                connection.close()

    def _stream(self, call: Call[object], headers: dict[str, str], silence: float, cancel: Cancel) -> Stream | Reply:
        connection = self._connection(self._timeout)
        # If the reply closes the connection, the connection has no socket any more; the stream still reads from this socket.
        connected = connection.sock
        try:
            with cancel.covers(connected):
                response = self._send(connection, call, {"accept": "application/x-ndjson"} | headers)
                if response.status == 200:
                    connected.settimeout(silence)
                    return Stream(connected, response, cancel)
                reply = Reply.of(response.status, response.getheader, response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise _lost(error, cancel) from error
        except Cancelled:
            connection.close()
            raise
        connection.close()
        return reply

    def _send(self, connection: http.client.HTTPConnection, call: Call[object], headers: dict[str, str]) -> http.client.HTTPResponse:
        sent = call.headers | headers
        if call.body is not None:
            sent["content-type"] = call.content_type
        connection.request(call.method, self._prefix + call.target, call.body, sent)
        return connection.getresponse()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
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
        if self._ssl is not None:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._ssl)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise ConnectionLost(f"can't connect to {self._host}:{self._port}: {error}", was_sent=False) from error
        return connection


def _is_readable(connected: socket.socket) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(connected, select.POLLIN)
        return bool(poll.poll(0))
    # Windows has no `poll`. Its `select` accepts any descriptor; on Unix, `select` accepts only the first 1,024.
    return bool(select.select([connected], [], [], 0)[0])


def _lost(error: Exception, cancel: Cancel) -> ConnectionLost | Cancelled:
    if cancel.is_set:
        return Cancelled("the call was cancelled")
    return ConnectionLost(f"there was no complete reply: {type(error).__name__}: {error}")
