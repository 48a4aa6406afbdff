"""Starts a real deltaq server for tests: in memory, on a free port of 127.0.0.1."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from .client import Client

#: Settings of a server for tests: its end does not wait for the keys that a test has leased.
SETTINGS = {"server.shutdown_timeout": "200ms"}
#: How often a server that starts is looked at, in seconds.
POLL_SECONDS = 0.01


class Server:
    """A running server. Stop it, or use it in a `with` block.

    `binary` is the program: by default the variable DELTAQ_BIN, else that of the package deltaq-server, else `deltaq` in the PATH. `data_dir` keeps the
    data of the server, which otherwise are in memory. `listen` is its address: by default a free port of 127.0.0.1. `settings` are settings of the server
    by their names in its configuration, such as `server.max_wait`. `ready` is how long the server may take until it takes calls, in seconds.
    """

    def __init__(
        self,
        *,
        binary: str | os.PathLike[str] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        listen: str = "127.0.0.1:0",
        settings: Mapping[str, str] | None = None,
        ready: float = 30.0,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="deltaqtest-"))
        self._log = self._folder / "log"
        ready_file = self._folder / "ready"
        store = ["--in-memory"] if data_dir is None else ["--data-dir", str(data_dir)]
        options = ["--listen", listen, "--metrics-listen", "", "--ready-file", str(ready_file), "--log-level", "warn", *store]
        try:
            with open(self._log, "wb") as log:
                command = [find() if binary is None else str(binary), "serve", *options]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(settings or {}))
        except BaseException:
            shutil.rmtree(self._folder)
            raise
        try:
            #: The URL for a `Client`.
            self.url = self._wait(ready_file, time.monotonic() + ready)
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self) -> Client:
        """A new client of the server. `deltaq.aio.Client(server.url)` is one for asyncio."""
        return Client(self.url)

    def log(self) -> str:
        """What the server has written so far: warnings and errors."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def stop(self) -> None:
        """Ends the server gracefully, as a deployment does, and waits for its end. After `kill`, it does nothing."""
        if not self._folder.exists():
            return
        self._process.terminate()
        status = self._process.wait()
        log = self.log()
        shutil.rmtree(self._folder)
        if status != 0:
            raise RuntimeError(f"the deltaq server has ended with status {status}:\n{log}")

    def kill(self) -> None:
        """Ends the server at once, as a crash does, and waits for its end."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self, ready_file: Path, until: float) -> str:
        while True:
            # The file appears with its whole text.
            if ready_file.exists():
                return f"http://{json.loads(ready_file.read_text())['api']}"
            if self._process.poll() is not None:
                raise RuntimeError(f"the deltaq server did not start:\n{self.log()}")
            if time.monotonic() > until:
                raise RuntimeError(f"the deltaq server is not ready:\n{self.log()}")
            time.sleep(POLL_SECONDS)


def find() -> str:
    """The path of the program: DELTAQ_BIN, else that of the package deltaq-server in the same environment, else `deltaq` in the PATH."""
    binary = os.environ.get("DELTAQ_BIN") or _installed() or shutil.which("deltaq")
    if binary is None:
        raise FileNotFoundError("there is no deltaq program: pip install deltaq-server, set DELTAQ_BIN to its path, or put deltaq into the PATH")
    return binary


def _installed() -> str | None:
    """The program of the package deltaq-server, which an environment that is not activated has outside the PATH."""
    try:
        path: str = importlib.import_module("deltaq_server").find_deltaq()
    except (ImportError, FileNotFoundError):
        return None
    return path


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without the settings of other servers, and with these."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
    return environment | {f"DELTAQ_{name.upper().replace('.', '__')}": value for name, value in (SETTINGS | dict(settings)).items()}
