"""What a scenario has: a server that can be killed, the fault proxy, the target, and the scenario program of a client."""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from proxy import Proxy, Refuse, is_authorized
from target import Target

# Longest time for anything that a scenario waits for, in seconds. It is long because CI machines may be slow; a passing scenario waits for none of it.
PATIENCE = 60.0
POLL = 0.01


class Failed(Exception):
    """A fault of the client."""


def check(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"after {seconds:g} s still not: {what}")
        time.sleep(POLL)


class Server:
    """A deltaq server with a data directory, always on the same port."""

    def __init__(self, binary: str, folder: Path, settings: dict[str, str]) -> None:
        self._binary = binary
        self._folder = folder
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        # The socket keeps the port while the server is down. Otherwise another server could get it.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port: int = self._held.getsockname()[1]

    def start(self) -> None:
        ready = self._folder / "ready"
        ready.unlink(missing_ok=True)
        command = [self._binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", "", "--log-level", "warn"]
        command += ["--data-dir", str(self._folder / "data"), "--ready-file", str(ready)]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
        # The scenarios crash the process, not the machine.
        environment |= {"DELTAQ_STORAGE__SYNC": "normal"} | self._settings
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        process = self._process
        wait_for(lambda: ready.exists() or process.poll() is not None, "the server is ready")
        check(process.poll() is None, "the server did not start")

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE)
            self._process = None

    def kill(self) -> None:
        """kill -9."""
        self.end(signal.SIGKILL)

    def terminate(self) -> None:
        self.end(signal.SIGTERM)

    def save(self) -> None:
        """Copies the data of a stopped server, as a backup."""
        shutil.copytree(self._folder / "data", self._folder / "backup")

    def restore(self) -> None:
        """Puts the copy in the place of the data of a stopped server."""
        self.forget()
        shutil.move(self._folder / "backup", self._folder / "data")

    def forget(self) -> None:
        """Deletes the data of a stopped server."""
        shutil.rmtree(self._folder / "data")

    # Calls that go around the proxy.

    def call(self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            data = None if body is None else json.dumps(body).encode()
            connection.request(method, path, data, ({"content-type": "application/json"} if data else {}) | (headers or {}))
            reply = connection.getresponse()
            text = reply.read()
            return reply.status, json.loads(text) if text else None
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: object = None) -> Any:
        status, reply = self.call(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {reply}")
        return reply


class Program:
    """A running scenario program."""

    def __init__(self, command: list[str], environment: dict[str, str], stderr: Path) -> None:
        self.worker = environment.get("WORKER_NAME")
        self.stderr = stderr
        with open(stderr, "ab") as errors:
            pipe = subprocess.PIPE
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, text=True)
        self._reports: queue.Queue[dict[str, Any] | None] = queue.Queue()
        # Every report so far, in order.
        self.reports: list[dict[str, Any]] = []
        self.bad_lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                report = json.loads(line)
                report["event"]
            except (ValueError, KeyError, TypeError):
                self.bad_lines.append(line)
                continue
            self.reports.append(report)
            self._reports.put(report)
        self._reports.put(None)

    def send(self, **command: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"the program has ended before the command {command}") from None

    def expect(self, event: str, seconds: float = PATIENCE) -> dict[str, Any]:
        """The next report of this event. Other reports before it stay in `reports`."""
        end = time.monotonic() + seconds
        while True:
            try:
                report = self._reports.get(timeout=max(end - time.monotonic(), 0.0))
            except queue.Empty:
                raise Failed(f"no report {event!r} within {seconds:g} s") from None
            if report is None:
                raise Failed(f"the program ended before a report {event!r}")
            if report["event"] == event:
                return report

    def ask(self, event: str, **command: object) -> dict[str, Any]:
        return self.ask_for(event, command=event, **command)

    def ask_for(self, event: str, **command: object) -> dict[str, Any]:
        """Sends a command whose report has another name."""
        self.send(**command)
        return self.expect(event)

    def signal(self, how: signal.Signals) -> None:
        self._process.send_signal(how)

    def close_stdin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, status: int | None, seconds: float = PATIENCE) -> None:
        """Waits for the end, and for this exit status unless it is None."""
        try:
            ended = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"the program did not end within {seconds:g} s") from None
        check(status is None or ended == status, f"the program ended with exit status {ended} instead of {status}")

    def stop(self, seconds: float = PATIENCE) -> None:
        self.signal(signal.SIGTERM)
        self.wait(0, seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stderr_text(self) -> str:
        return self.stderr.read_text(errors="replace")


class Scenario:
    """The world of one run of a scenario; a context manager."""

    def __init__(self, name: str, options: Any, settings: dict[str, str]) -> None:
        self.name = name
        self.faults = options.faults
        self.random = random.Random(f"{options.seed} {name}")
        self._command = options.command
        self._environment = options.environment
        self.queue = "work"
        self.folder = Path(tempfile.mkdtemp(prefix=f"deltaq-{name}-"))
        os.chmod(self.folder, 0o700)
        self.programs: list[Program] = []
        self.target = Target()
        self.server = Server(options.server, self.folder, settings)
        self.proxy = Proxy()

    def __enter__(self) -> Scenario:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self.programs:
            if program.is_running():
                program.kill()
        self.proxy.close()
        self.server.kill()
        self.target.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, subcommand: str, *, is_early: bool = False, **settings: object) -> Program:
        """Starts the scenario program. Settings are in lower case here, in upper case in the environment. A worker finds its queue, unless it is early."""
        defaults: dict[str, object] = {"deltaq_url": self.proxy.url, "deltaq_queue": self.queue}
        if subcommand == "worker":
            if not is_early:
                self.server.call("PUT", self.path(), {}, {"if-none-match": "*"})
            name = f"w{len(self.programs) + 1}"
            defaults |= {"target_url": self.target.url, "worker_name": name, "concurrency": 1, "batch": 1}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
        environment |= self._environment
        environment |= {name.upper(): str(value) for name, value in (defaults | settings).items()}
        stderr = self.folder / f"program-{len(self.programs) + 1}.err"
        program = Program([*self._command, subcommand], environment, stderr)
        self.programs.append(program)
        return program

    # Calls to the server that go around the proxy.

    def path(self, call: str = "") -> str:
        return f"/v1/queues/{quote(self.queue)}" + (f"/{call}" if call else "")

    def configure(self, **settings: object) -> None:
        self.server.ok("PUT", self.path(), settings)

    def post(self, call: str, body: object = None) -> Any:
        return self.server.ok("POST", self.path(call), body)

    def get(self, call: str) -> Any:
        return self.server.ok("GET", self.path(call))

    def add(self, *objects: dict[str, Any]) -> Any:
        return self.post("add", list(objects))

    def items(self, state: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get(f"items?state={state}&limit=5000")["items"]
        return items

    def view(self, view: str = "latest") -> dict[str, Any]:
        """The objects of a view of the queue."""
        status, listed = self.server.call("GET", self.path(f"{view}?limit=5000"))
        return {item["key"]: item["object"] for item in listed["items"]} if status == 200 else {}

    def is_idle(self) -> bool:
        status, counts = self.server.call("GET", self.path("status"))
        return status == 200 and counts["ready"] + counts["delayed"] + counts["leased"] == 0

    def wait_idle(self) -> None:
        def idle_or_fault() -> bool:
            self.check_faults()
            return self.is_idle()

        wait_for(idle_or_fault, "no key is ready, delayed or leased")

    def check_faults(self) -> None:
        check(not self.target.faults, "; ".join(self.target.faults[:3]))
        check(not self.proxy.wrong, "; ".join(self.proxy.wrong[:3]))
        for program in self.programs:
            check(not program.bad_lines, f"a line of stdout is no report: {program.bad_lines[:1]}")

    def check_written(self, expected: dict[str, Any]) -> None:
        """Everything was written, and is known to the queue."""
        self.check_faults()
        state = self.target.state()
        wrong = [key for key in expected.keys() | state.keys() if expected.get(key) != state.get(key)]
        for key in wrong[:1]:
            raise Failed(f"{len(wrong)} keys differ: the target has {state.get(key)} for {key!r}, not {expected.get(key)}")
        check(self.view("known") == expected, "the known objects of the queue differ from the target")

    def wait_popping(self, worker: Program) -> None:
        """Waits until a worker has popped: its handlers for signals are installed."""
        wait_for(lambda: any(pop.parameter("worker") == worker.worker for pop in self.proxy.calls("pop")), "the worker pops")

    def check_stopped(self, *programs: Program) -> None:
        """Stops workers by SIGTERM. No lease may be left."""
        for program in programs:
            self.wait_popping(program)
        for program in programs:
            program.signal(signal.SIGTERM)
        for program in programs:
            program.wait(0)
        leased = self.items("leased")
        check(not leased, f"{len(leased)} keys are still leased after the worker has ended")
        self.check_faults()

    def logs(self) -> str:
        """The ends of the stderr of the programs, of the server's log, and of the requests at the proxy."""
        parts = [(program.stderr.name, program.stderr_text()) for program in self.programs]
        parts.append(("server.log", (self.folder / "server.log").read_text(errors="replace")))
        parts.append(("requests", self.proxy.last_requests()))
        return "".join(f"--- {name}\n{text[-2000:]}\n" for name, text in parts if text)


def with_token_file(s: Scenario) -> Callable[[], None]:
    """Writes the file `token`, and lets the proxy refuse every other token. Returns a function that replaces the token."""
    count, accepted = 0, {"token-0"}

    def write() -> None:
        new = s.folder / "token.new"
        new.write_text(f"token-{count}\n")
        new.rename(s.folder / "token")

    def rotate() -> None:
        nonlocal count
        count += 1
        # Both are accepted until the new one is in the file.
        accepted.add(f"token-{count}")
        write()
        accepted.discard(f"token-{count - 1}")

    write()
    s.proxy.decide = lambda request: None if is_authorized(request, accepted) else Refuse(401, "unauthorized")
    return rotate
