"""Notices that a server no longer answers, while threads wait for it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .errors import ConnectionLost
from .servers import SILENCE_SECONDS


class Watchdog:
    """Ends the calls at a server that is silent and does not say that it is alive. Its thread runs only while there are calls."""

    def __init__(self, is_alive: Callable[[], bool]) -> None:
        self._is_alive = is_alive
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._ended: set[socket.socket] = set()
        self._heard_at = 0.0
        self._runs = False

    def heard(self) -> None:
        """The server has answered."""
        self._heard_at = time.monotonic()

    @contextmanager
    def covers(self, connected: socket.socket) -> Iterator[None]:
        """Within this block, reads of the socket end when the server no longer answers. A stream that ends so seems complete, and is not."""
        with self._lock:
            if not self._sockets:
                self.heard()
            self._sockets.add(connected)
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="deltaq-watchdog", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(connected)
                was_ended = connected in self._ended
                self._ended.discard(connected)
        if was_ended:
            raise ConnectionLost("the server no longer answers")

    def _run(self) -> None:
        while True:
            left = self._heard_at + SILENCE_SECONDS - time.monotonic()
            if left > 0:
                time.sleep(left)
                continue
            with self._lock:
                if not self._sockets:
                    self._runs = False
                    return
            if not self._is_alive():
                with self._lock:
                    self._ended |= self._sockets
                    for connected in self._sockets:
                        shut_down(connected)
            self.heard()


def shut_down(connected: socket.socket) -> None:
    """Ends the reads of another thread."""
    with suppress(OSError):
        # The method of the plain socket: `SSLSocket.shutdown` would change the state of the object while another thread reads from it.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)
