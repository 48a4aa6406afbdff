"""Why no server answers, and the log of it while calls are repeated. No I/O except the log."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable

from .calls import Call
from .errors import BadReply, ConnectionLost, Error, Problem
from .retry import Attempts
from .servers import shown

log = logging.getLogger("deltaq")

#: While calls are repeated, this is logged at most once in this time, in seconds.
LOG_SECONDS = 60.0
#: A queue that moves to another node refuses fewer attempts than this.
MOVING_FAILURES = 5
#: What OpenSSL says if the other side does not speak TLS. The version of OpenSSL decides which it is.
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")


class Outage:
    """Logs that the calls of a client are repeated: at the first failure of a row, then at most once a minute, and once when a server answers again."""

    def __init__(self, urls: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._urls = ",".join(map(shown, urls))
        self._clock = clock
        self._lock = threading.Lock()
        # When the present row was logged last; None if there is none.
        self._logged_at: float | None = None

    def repeats(self, error: Error, call: Call[object], attempts: Attempts) -> None:
        """A call has failed and is repeated."""
        # A server that answers 429 is at work, and a queue moves to another node within seconds.
        if isinstance(error, Problem) and (error.status < 500 or (error.code == "not-owner" and attempts.failures < MOVING_FAILURES)):
            return
        with self._lock:
            now = self._clock()
            if self._logged_at is not None and now < self._logged_at + LOG_SECONDS:
                return
            self._logged_at = now
        origin = f"{self._urls}: " if isinstance(error, (Problem, BadReply)) else ""
        log.warning("%s%s; %s is repeated%s", origin, error, call.label, attempts.limit)

    def answered(self) -> None:
        """A server has answered."""
        # Reading a member needs no lock, and nearly every call ends here.
        if self._logged_at is None:
            return
        with self._lock:
            was_logged, self._logged_at = self._logged_at is not None, None
        if was_logged:
            log.info("%s answers again", self._urls)


def unreachable(url: str, error: Exception) -> ConnectionLost:
    """There is no connection to a server. A certificate or a protocol that does not fit will not fit at the next attempt either."""
    cause = _cause(error)
    text = f"can't reach {shown(url)} ({_reason(cause)})"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return ConnectionLost(f"{text}; ssl_context sets the certificates that are trusted", was_sent=False, is_lasting=True)
    if isinstance(cause, ssl.SSLError) and cause.reason in NO_TLS:
        return ConnectionLost(f"{text}; does the server speak TLS?", was_sent=False, is_lasting=True)
    return ConnectionLost(text, was_sent=False)


def incomplete(url: str, error: Exception) -> ConnectionLost:
    """A server has not replied, or not to the end."""
    return ConnectionLost(f"there was no complete reply from {shown(url)} ({type(error).__name__}: {error})")


def _cause(error: BaseException) -> BaseException:
    """The error of the operating system or of TLS: libraries hide it behind errors of their own."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (ssl.SSLError, TimeoutError)) or (isinstance(cause, OSError) and cause.errno is not None):
            return cause
        cause = cause.__cause__ or cause.__context__
    return error


def _reason(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"CERTIFICATE_VERIFY_FAILED: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return cause.reason or str(cause)
    if isinstance(cause, socket.gaierror):
        return (cause.strerror or str(cause)).lower()
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return str(cause).lower() or type(cause).__name__
