"""Tests of clients that have the URLs of several servers."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import itertools
import json
import socket
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from typing import ClassVar
from unittest import mock

from deltaq import Client, ConnectionLost, Problem, RetryOptions, aio, calls
from deltaq.retry import Attempts
from deltaq.servers import ALIVE_TARGET, Servers
from deltaq.transport import Cancel

#: A client that sends each call once.
ONCE = RetryOptions(attempts=1)


class Server(http.server.ThreadingHTTPServer):
    """A server that a test controls."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.targets: list[str] = []
        #: The code of the problem that all calls get.
        self.code: str | None = None
        self.status = 503
        #: Whether requests are read and never answered.
        self.is_silent = False
        #: How many questions whether the server is alive have come, and how many a call waits for.
        self.questions = 0
        self.slow_for = 0


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server
    ends: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        if self.server.is_silent:
            self.ends.wait()
            return
        if self.path == ALIVE_TARGET:
            assert self.headers["authorization"] is None
            self.server.questions += 1
            self.reply(200, b"")
            return
        self.server.targets.append(self.path)
        while self.server.questions < self.server.slow_for:
            time.sleep(0.01)
        if self.server.code is not None or self.server.status != 503:
            problem = {"status": self.server.status, "code": self.server.code, "retryable": True}
            self.reply(self.server.status, json.dumps(problem).encode() if self.server.code else b"<html>")
        elif "/watch" in self.path:
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            line = b'{"type":"Bookmark"}\n'
            self.server.is_silent = True
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.ends.wait()
        else:
            self.reply(200, b'{"keys":0}')

    def do_POST(self) -> None:
        self.do_GET()

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Sync:
    """Calls of the client for threads."""

    def __init__(self, url: str, retry: RetryOptions = ONCE) -> None:
        self.client = Client(url, token="secret", retry=retry, reply_timeout=600.0)

    def purge(self) -> object:
        return self.client.queue("q").purge()

    def rows(self) -> list[object]:
        return list(self.client.rows(calls.watch("q"), Cancel(), "10m"))

    def close(self) -> None:
        self.client.close()


class Async:
    """Calls of the client for asyncio."""

    def __init__(self, url: str, retry: RetryOptions = ONCE) -> None:
        self.client, self.loop = aio.Client(url, token="secret", retry=retry, reply_timeout=600.0), asyncio.new_event_loop()

    def purge(self) -> object:
        return self.loop.run_until_complete(self.client.queue("q").purge())

    def rows(self) -> list[object]:
        async def collect() -> list[object]:
            return [row async for row in self.client.rows(calls.watch("q"), "10m")]

        return self.loop.run_until_complete(collect())

    def close(self) -> None:
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


def nobody() -> str:
    """A URL at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    names = (
        "deltaq.watchdog.SILENCE_SECONDS",
        "deltaq.aio.client.SILENCE_SECONDS",
        "deltaq.transport.ALIVE_SECONDS_MAX",
        "deltaq.aio.client.ALIVE_SECONDS_MAX",
    )
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch(name, 0.2))
        yield


class SeveralServers(unittest.TestCase):
    KINDS: ClassVar[list[Callable[..., Sync | Async]]] = [Sync, Async]

    def setUp(self) -> None:
        self.first, self.second = self.server(), self.server()
        Handler.ends = threading.Event()
        self.addCleanup(Handler.ends.set)

    def server(self) -> Server:
        server = Server()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    @contextlib.contextmanager
    def client(self, kind: Callable[..., Sync | Async], *urls: str) -> Iterator[Sync | Async]:
        client = kind(",".join(urls))
        self.second.targets.clear()
        try:
            yield client
        finally:
            client.close()

    def test_a_call_goes_on_at_the_next_server_if_nothing_was_done(self) -> None:
        self.first.code, strict, other = "draining", self.server(), self.server()
        strict.status, strict.code, other.status = 401, "unauthorized", 404
        several = [nobody(), strict.url, other.url, nobody()]
        for kind, undone in itertools.product(self.KINDS, ([nobody()], [self.first.url], [strict.url], [other.url], several)):
            with self.client(kind, *undone, self.second.url) as client:
                client.purge()
                client.purge()
                self.assertEqual(self.second.targets, ["/v1/queues/q/purge"] * 2)

    def test_a_call_that_may_have_been_applied_is_not_sent_to_the_next_server(self) -> None:
        for kind, (status, code) in itertools.product(self.KINDS, [(503, "not-owner"), (502, None), (504, "timeout")]):
            self.first.status, self.first.code = status, code
            with self.client(lambda url, kind=kind: kind(url, RetryOptions()), self.first.url, self.second.url) as client:
                with self.assertRaises(Problem):
                    client.purge()
                self.assertEqual(self.second.targets, [])
                client.purge()
                self.assertEqual(len(self.second.targets), 1)

    def test_a_server_that_passes_nothing_is_left(self) -> None:
        for kind in self.KINDS:
            with impatient(), self.client(kind, self.first.url, self.second.url) as client:
                self.first.is_silent = True
                with self.assertRaises(ConnectionLost) as lost:
                    client.purge()
                self.assertTrue(lost.exception.was_sent)
                self.assertEqual(self.second.targets, [])
                client.purge()
                self.assertEqual(len(self.second.targets), 1)

    def test_a_watch_begins_at_the_next_server(self) -> None:
        self.first.status = 401
        for kind, undone in itertools.product(self.KINDS, ([nobody()], [self.first.url], [nobody(), self.first.url])):
            self.second.is_silent = False
            with impatient(), self.client(kind, *undone, self.second.url) as client, self.assertRaises(ConnectionLost):
                client.rows()
            self.assertEqual(len(self.second.targets), 1)

    def test_a_watch_of_a_server_that_passes_nothing_any_more_ends(self) -> None:
        for kind in self.KINDS:
            self.first.is_silent = False
            with impatient(), self.client(kind, self.first.url, self.second.url) as client:
                with self.assertRaises(ConnectionLost):
                    client.rows()
                client.purge()
                self.assertEqual(len(self.second.targets), 1)

    def test_a_server_that_is_alive_is_waited_for(self) -> None:
        for kind in self.KINDS:
            self.first.questions, self.first.slow_for = 0, 3
            with mock.patch("deltaq.watchdog.SILENCE_SECONDS", 0.05), mock.patch("deltaq.aio.client.SILENCE_SECONDS", 0.05):
                with self.client(kind, self.first.url, self.second.url) as client:
                    client.purge()
                self.assertEqual(self.second.targets, [])

    def test_without_any_server_the_call_fails(self) -> None:
        for kind in self.KINDS:
            with self.client(kind, nobody(), nobody()) as client, self.assertRaises(ConnectionLost) as lost:
                client.purge()
            self.assertFalse(lost.exception.was_sent)


class Choices(unittest.TestCase):
    def test_equal_urls_are_one_server(self) -> None:
        self.assertEqual(Servers("http://[::1]:7070/,[::1]:7070, HTTP://[::1]:7070//").urls, ["http://[::1]:7070"])
        self.assertEqual(len(Servers("a,https://a,a/deltaq,a:81,http://A:80").urls), 4)

    def test_what_is_no_url_of_a_server_is_refused_without_its_password(self) -> None:
        for wrong in ("", "a,", ",a", "a,,b", "a,http://user:secret@b", "a,ftp://b", "a b", "a:x", "http://a?b", "http://a#b", "http://", "http://[::1"):
            for kind in (Client, aio.Client):
                with self.assertRaises(ValueError, msg=wrong) as refused:
                    kind(wrong)
                self.assertNotIn("secret", str(refused.exception))

    def test_a_failure_leads_to_the_next_server_and_only_an_owner_of_the_list_is_called_directly(self) -> None:
        servers = Servers("http://a:1,http://b:2,https://c/deltaq")
        q, r = "/v1/queues/q/pop?max=1", "/v1/queues/r"
        servers.leave(1, r)
        self.assertEqual(servers.next(r), 0, "another call has failed elsewhere")
        servers.leave(0, r)
        servers.leave(0, q)
        self.assertEqual(servers.next("/v1/info"), 1)
        servers.answered(1, q, 200, "https://C:443/deltaq/")
        self.assertEqual((servers.next(q), servers.next(r)), (2, 1))
        for other in ("http://d:4", "https://c", "http://c/deltaq", "c", "", "http://a:1@evil"):
            servers.answered(1, r, 200, other)
            self.assertEqual(servers.next(r), 1, other)
        servers.answered(2, q, 503, None)
        self.assertEqual(servers.next(q), 1)

    def test_a_queue_that_moves_is_waited_for_with_short_pauses(self) -> None:
        attempts = Attempts(RetryOptions(random=lambda: 1.0))
        moving = Problem(503, {"code": "not-owner", "retryable": True}, 0.25)
        waits = [attempts.wait_after(moving) for _ in range(20)]
        self.assertEqual(waits[-1], 1.25)

    def test_a_call_is_repeated_for_as_long_as_its_policy_says(self) -> None:
        attempts = Attempts(RetryOptions(total=1.5, random=lambda: 0.0))
        self.assertEqual([attempts.wait_after(ConnectionLost()) for _ in range(50)], [0.0] * 50)
        self.assertIsNone(attempts.wait_after(Problem(503, {"retryable": True}, 2.0)))


if __name__ == "__main__":
    unittest.main()
