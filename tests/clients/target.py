"""The target of the workers' writes: decides how each handler ends, and checks the fencing token of each write."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Longest time for which a start is held, in seconds.
HOLD_MAX = 25.0


@dataclass
class Work:
    """A start or a write: what the handler of one lease reported."""

    worker: str
    key: str
    token: int
    attempt: int
    lease_id: str
    versions: list[int]
    type: str | None
    object: Any
    # The order of arrival.
    number: int = 0


@dataclass
class Plan:
    """How the target answers a start."""

    reply: dict[str, Any] = field(default_factory=lambda: {"as": "ack"})
    # The reply waits for this event.
    hold: threading.Event | None = None
    # The reply waits for this long, in seconds.
    delay: float = 0.0


class Target:
    def __init__(self) -> None:
        self.plan: Callable[[Work], Plan] = lambda work: Plan()
        self.starts: list[Work] = []
        self.writes: list[Work] = []
        self.faults: list[str] = []
        # Whether a finished change may be written again: the client or its lease is killed on purpose.
        self.may_repeat = False
        # Written changes (key, version) whose handler ended with an ack.
        self._finished: set[tuple[str, int]] = set()
        self._replies: dict[int, dict[str, Any]] = {}
        self._newest: dict[str, int] = {}
        self._lock = threading.Lock()
        target = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                length = int(self.headers.get("content-length", "0"))
                body = self.rfile.read(length)
                if len(body) < length:
                    # The client was killed.
                    self.close_connection = True
                    return
                status, reply = target.handle(self.path, body)
                data = json.dumps(reply).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    self.wfile.flush()
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that was killed resets its connections."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def handle(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        try:
            work = read_work(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            with self._lock:
                self.faults.append(f"{path}: the body is not as README.md says: {error!r}: {body[:300]!r}")
            return 400, {"error": repr(error)}
        if path == "/start":
            return self._start(work)
        if path == "/write":
            return self._write(work)
        self.faults.append(f"unknown path {path}")
        return 404, {}

    def _start(self, work: Work) -> tuple[int, dict[str, Any]]:
        with self._lock:
            work.number = len(self.starts)
            self.starts.append(work)
        plan = self.plan(work)
        with self._lock:
            self._replies[work.token] = plan.reply
        if plan.hold is not None:
            plan.hold.wait(HOLD_MAX)
        if plan.delay:
            threading.Event().wait(plan.delay)
        return 200, plan.reply

    def _write(self, work: Work) -> tuple[int, dict[str, Any]]:
        with self._lock:
            fault = self._fault(work)
            work.number = len(self.writes)
            self.writes.append(work)
            self._newest[work.key] = max(work.token, self._newest.get(work.key, 0))
            if self._replies.get(work.token, {}).get("as") == "ack":
                self._finished.update((work.key, version) for version in work.versions)
            if fault:
                self.faults.append(fault)
                return 409, {"error": fault}
        return 200, {}

    def _fault(self, work: Work) -> str | None:
        newest = self._newest.get(work.key, 0)
        if work.token < newest:
            return f"key {work.key!r} was written with token {work.token} after token {newest}"
        if work.token == newest:
            return f"key {work.key!r} was written twice with token {work.token}"
        repeated = [version for version in work.versions if (work.key, version) in self._finished]
        if repeated and not self.may_repeat:
            return f"versions {repeated} of key {work.key!r} were done twice; the second time with token {work.token}"
        return None

    def state(self) -> dict[str, Any]:
        """The last written object of each key that was not deleted."""
        objects: dict[str, Any] = {}
        with self._lock:
            for work in self.writes:
                if work.type == "Deleted":
                    objects.pop(work.key, None)
                else:
                    objects[work.key] = work.object
        return objects

    def written(self) -> int:
        with self._lock:
            return len(self.writes)

    def started(self) -> int:
        with self._lock:
            return len(self.starts)


def read_work(fields: dict[str, Any]) -> Work:
    for name in ("token", *(["versions"] if fields["versions"] else [])):
        value = fields[name] if name == "token" else fields[name][0]
        if not isinstance(value, str):
            raise TypeError(f"{name} must be text, not {value!r}")
    return Work(
        worker=fields["worker"],
        key=fields["key"],
        token=int(fields["token"]),
        attempt=int(fields["attempt"]),
        lease_id=fields["lease_id"],
        versions=[int(version) for version in fields["versions"]],
        type=fields["type"],
        object=fields["object"],
    )
