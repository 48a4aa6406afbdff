"""An HTTP proxy between a client and the server, which loses, cuts, delays and refuses on purpose.

`Proxy.decide` is called with each request and returns a fault or None. A client that disconnects is noticed at once, and so is the server: a request
whose client has disconnected never reaches the end of its reply.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote, unquote, urlsplit

RECEIVE_BYTES = 65536


class Disconnected(Exception):
    """One of the two sides has closed its connection."""


@dataclass
class Request:
    method: str
    target: str
    head: bytes
    body: bytes
    at: float = field(default_factory=time.monotonic)
    # Whether the whole reply was sent to the client.
    is_answered: bool = False

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def call(self) -> str:
        """The last segment of the path, such as `pop`."""
        return self.path.rsplit("/", 1)[-1]

    def parameter(self, name: str) -> str | None:
        values = parse_qs(urlsplit(self.target).query).get(name)
        return values[0] if values else None


# Whether the server calls a problem retryable.
RETRYABLE = {
    "disk-full": True,
    "draining": True,
    "expired": False,
    "internal": False,
    "journal-unavailable": True,
    "not-owner": True,
    "timeout": True,
    "too-many-requests": True,
    "unauthorized": False,
}


@dataclass
class Refuse:
    """A problem document. With `applied` the server has applied the call before, and only its reply is replaced."""

    status: int
    code: str
    retry_after_ms: int | None = None
    applied: bool = False


class Drop:
    """Closes the connection; the request does not reach the server."""


class Swallow:
    """The server applies the request, and the connection closes before the reply."""


@dataclass
class Cut:
    """Closes the connection after this many bytes of the reply's body, or after half of a body of known length."""

    after_bytes: int | None = None


@dataclass
class Freeze:
    """Sends nothing more after this many bytes of the reply's body, and keeps the connection open."""

    after_bytes: int = 0


class Hang:
    """Sends no reply, and keeps the connection open; the request does not reach the server."""


class Close:
    """The reply says `Connection: close`, and the connection closes behind it."""


@dataclass
class Html:
    """A page of a proxy instead of a reply: 502 if the server can't be reached, 200 to sign in."""

    status: int = 502


@dataclass
class Rewrite:
    """Changes the body of the reply."""

    change: Callable[[bytes], bytes]


Fault = Refuse | Drop | Swallow | Cut | Freeze | Hang | Close | Html | Rewrite


class Connection:
    """A buffered socket."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def receive(self, watched: Connection | None = None) -> None:
        """Reads at least one byte. The end of `watched`, the other side, ends the wait."""
        while True:
            sockets = [self.socket] if watched is None else [self.socket, watched.socket]
            ready, _, _ = select.select(sockets, [], [])
            if self.socket in ready:
                data = self.socket.recv(RECEIVE_BYTES)
                if not data:
                    raise Disconnected
                self.buffer += data
                return
            if watched is not None and not watched.socket.recv(1, socket.MSG_PEEK):
                raise Disconnected

    def take(self, count: int, watched: Connection | None = None) -> bytes:
        while len(self.buffer) < count:
            self.receive(watched)
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def take_until(self, end: bytes, watched: Connection | None = None) -> bytes:
        while end not in self.buffer:
            self.receive(watched)
        return self.take(self.buffer.index(end) + len(end))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def headers_of(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, value in pairs}


class Proxy:
    """Forwards to the server at `server_port`. The client connects to `url`."""

    def __init__(self) -> None:
        self.server_port = 0
        self.decide: Callable[[Request], Fault | None] = lambda request: None
        self.requests: list[tuple[Request, str]] = []
        # What the client has done wrong.
        self.wrong: list[str] = []
        # Subtracted from the version of a watch: the replies of a Rewrite have larger ones.
        self.version_offset = 0
        # Whether connections are accepted and nothing passes, on open ones too.
        self.is_silent = False
        # Whether paths are decoded and normalised, as many proxies do.
        self.normalises = False
        self._allowed_at: dict[tuple[str, str, bytes], float] = {}
        self._open: set[Connection] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            # A thread that accepts would keep the port open.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def cut_all(self) -> None:
        """Closes every connection, also in the middle of a reply."""
        with self._lock:
            opened = list(self._open)
        for connection in opened:
            connection.close()

    def calls(self, name: str) -> list[Request]:
        with self._lock:
            return [request for request, _ in self.requests if request.call == name]

    def last_requests(self) -> str:
        """The last requests with their age and their fault, a line each."""
        now = time.monotonic()
        with self._lock:
            return "".join(f"{now - request.at:.3f} s ago: {request.method} {request.target} {fault or '-'}\n" for request, fault in self.requests[-12:])

    def faults(self) -> int:
        with self._lock:
            return sum(1 for _, fault in self.requests if fault)

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(Connection(accepted),), daemon=True).start()

    def _serve(self, client: Connection) -> None:
        server: Connection | None = None
        with self._lock:
            self._open.add(client)
        try:
            while True:
                request = read_request(client)
                fault = self._decide(request)
                if isinstance(fault, Drop):
                    return
                if isinstance(fault, Hang) or self.is_silent:
                    client.receive()
                    return
                if isinstance(fault, (Refuse, Html)) and not getattr(fault, "applied", False):
                    self._remember(request, fault)
                    client.socket.sendall(refusal(fault))
                    continue
                if server is None:
                    server = Connection(socket.create_connection(("127.0.0.1", self.server_port), timeout=10))
                    server.socket.settimeout(None)
                    with self._lock:
                        self._open.add(server)
                server.socket.sendall(self._head(request) + request.body)
                if not self._reply(client, server, request, fault):
                    return
        except (OSError, Disconnected, ValueError):
            pass
        finally:
            for connection in filter(None, (client, server)):
                connection.close()
                with self._lock:
                    self._open.discard(connection)

    def _decide(self, request: Request) -> Fault | None:
        key = (request.method, request.target, request.body)
        with self._lock:
            allowed_at = self._allowed_at.pop(key, 0.0)
            if request.at < allowed_at:
                early = allowed_at - request.at
                self.wrong.append(f"{request.method} {request.target} came {early:.3f} s before Retry-After")
            fault = self.decide(request)
            self.requests.append((request, type(fault).__name__ if fault else ""))
        return fault

    def _head(self, request: Request) -> bytes:
        if self.normalises:
            path = quote(posixpath.normpath(unquote(request.path)))
            return request.head.replace(request.path.encode(), path.encode(), 1)
        version = request.parameter("resource_version")
        # The id of an event is opaque, and no version of a reply.
        if not self.version_offset or version in (None, "0") or "-" in version:
            return request.head
        real = int(version) - self.version_offset
        if real < 0:
            self.wrong.append(f"{request.target} asks for a version that no reply had")
        return request.head.replace(f"resource_version={version}".encode(), f"resource_version={real}".encode())

    def _remember(self, request: Request, fault: Refuse | Html) -> None:
        wait = fault.retry_after_ms if isinstance(fault, Refuse) else None
        if wait:
            with self._lock:
                self._allowed_at[(request.method, request.target, request.body)] = time.monotonic() + wait / 1000

    def _reply(self, client: Connection, server: Connection, request: Request, fault: Fault | None) -> bool:
        """Forwards the reply. False: the connection has to be closed."""
        head = server.take_until(b"\r\n\r\n", client)
        status = int(head.split(b" ", 2)[1])
        headers = headers_of(head)
        bodiless = request.method == "HEAD" or status in (204, 304)
        if self.is_silent:
            fault = Freeze()
            head = b""
        if isinstance(fault, Close):
            head = head.replace(b"\r\n", b"\r\nconnection: close\r\n", 1)
        if headers.get("transfer-encoding", "").lower() == "chunked" and not bodiless:
            return self._stream(client, server, head, fault)
        body = b"" if bodiless else server.take(int(headers.get("content-length", "0")), client)
        if isinstance(fault, Swallow):
            return False
        if isinstance(fault, Refuse):
            self._remember(request, fault)
            client.socket.sendall(refusal(fault))
            return True
        if isinstance(fault, Cut) and body:
            after = len(body) // 2 if fault.after_bytes is None else fault.after_bytes
            client.socket.sendall(head + body[:after])
            return False
        if isinstance(fault, Rewrite) and body:
            body = fault.change(body)
            head = with_length(head, len(body))
        if isinstance(fault, Freeze):
            client.socket.sendall(head + body[: fault.after_bytes])
            client.receive()
            return False
        client.socket.sendall(head + body)
        request.is_answered = True
        return not isinstance(fault, Close) and headers.get("connection", "").lower() != "close"

    def _stream(self, client: Connection, server: Connection, head: bytes, fault: Fault | None) -> bool:
        """Forwards a chunked reply, chunk by chunk."""
        if isinstance(fault, (Swallow, Refuse)):
            return False
        client.socket.sendall(head)
        sent = 0
        while True:
            size_line = server.take_until(b"\r\n", client)
            size = int(size_line.split(b";")[0], 16)
            chunk = server.take(size + 2, client)[:-2]
            if self.is_silent:
                client.receive()
                return False
            limit = fault.after_bytes if isinstance(fault, (Cut, Freeze)) else None
            if isinstance(fault, Cut) and limit is None:
                limit = 0
            if limit is not None and sent + size > limit:
                part = chunk[: limit - sent]
                if part:
                    client.socket.sendall(b"%x\r\n%s\r\n" % (len(part), part))
                if isinstance(fault, Freeze):
                    client.receive()
                return False
            if isinstance(fault, Rewrite):
                chunk = fault.change(chunk)
            client.socket.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            sent += size
            if size == 0:
                return not isinstance(fault, Close)


def read_request(client: Connection) -> Request:
    head = client.take_until(b"\r\n\r\n")
    method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
    headers = headers_of(head)
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        size = -1
        while size != 0:
            line = client.take_until(b"\r\n")
            size = int(line.split(b";")[0], 16)
            body += line + client.take(size + 2)
    else:
        body = client.take(int(headers.get("content-length", "0")))
    return Request(method, target, head, body)


def refusal(fault: Refuse | Html) -> bytes:
    if isinstance(fault, Html):
        status, kind, body, extra = fault.status, "text/html", b"<html>\n<h1>A proxy</h1>\n</html>\n", ""
    else:
        status, kind, extra = fault.status, "application/problem+json", ""
        problem: dict[str, object] = {
            "type": f"http://deltaq.example/problems/{fault.code}",
            "title": "A fault of the proxy",
            "status": status,
            "detail": "the fault proxy refuses this call",
            "code": fault.code,
            "retryable": RETRYABLE[fault.code],
            "request_id": "proxy",
        }
        if fault.code == "expired":
            problem["reason"] = "too_old"
        if fault.retry_after_ms is not None:
            problem["retry_after_ms"] = fault.retry_after_ms
            extra = f"retry-after: {-(-fault.retry_after_ms // 1000)}\r\n"
        body = json.dumps(problem).encode() + b"\n"
    head = f"HTTP/1.1 {status} Refused\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def is_authorized(request: Request, tokens: set[str]) -> bool:
    return headers_of(request.head).get("authorization", "").removeprefix("Bearer ") in tokens


def with_length(head: bytes, length: int) -> bytes:
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length:")]
    lines.insert(1, b"content-length: %d" % length)
    return b"\r\n".join(lines)
