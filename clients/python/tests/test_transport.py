"""Tests of connections."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import os
import pathlib
import resource
import tempfile
import threading
import unittest
from collections.abc import Callable, Coroutine, Iterator
from typing import ClassVar

from deltaq import Client, Problem, Queue, TokenError, aio, calls
from deltaq.transport import Cancel

#: More descriptors than `select` takes.
DESCRIPTORS = 1100


class Info(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


class Guarded(Info):
    """Replies to one token."""

    accepted = ""
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        token = (self.headers["authorization"] or "").removeprefix("Bearer ")
        self.seen.append(token)
        body = b'{"type":"Bookmark"}\n'
        self.send_response(200 if token == self.accepted else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Tokens(unittest.TestCase):
    """A token file that is replaced."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "token"
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.url = stack.enter_context(serving(Guarded))

    def replaced(self, send: Callable[[], object]) -> None:
        """Replaces the token of a client of which `send` sends one request with the token `one`."""
        Guarded.seen = []
        Guarded.accepted = "one"
        send()
        Guarded.accepted = "two"
        for moment in ("one", "", "a\udcff"):
            self.file.write_bytes(moment.encode("utf-8", "surrogateescape"))
            with self.assertRaises(Problem) as refused:
                send()
            self.assertEqual(refused.exception.status, 401)
        self.file.unlink()
        with self.assertRaises(Problem):
            send()
        self.assertEqual(Guarded.seen, ["one"] * 5)
        self.file.write_text("two\n")
        send()
        send()
        self.assertEqual(Guarded.seen[5:], ["one", "two", "two"])

    def test_a_call_and_a_watch_go_on_with_the_new_token(self) -> None:
        watch = calls.watch("q")
        sends: list[Callable[[Client], object]] = [lambda client: client.info(), lambda client: list(client.rows(watch, Cancel(), None))]
        for send in sends:
            self.file.write_text("one\n")
            with Client(self.url, token_file=self.file) as client:
                self.replaced(functools.partial(send, client))

    def test_so_do_those_of_asyncio(self) -> None:
        watch = calls.watch("q")

        async def rows(client: aio.Client) -> None:
            self.assertEqual([row async for row in client.rows(watch, None)], [{"type": "Bookmark"}])

        sends: list[Callable[[aio.Client], Coroutine[object, object, object]]] = [lambda client: client.info(), rows]
        for send in sends:
            self.file.write_text("one\n")
            client, loop = aio.Client(self.url, token_file=str(self.file)), asyncio.new_event_loop()
            self.replaced(functools.partial(lambda send, client, loop: loop.run_until_complete(send(client)), send, client, loop))
            loop.run_until_complete(client.close())
            loop.close()

    def test_a_source_is_asked_for_each_attempt_and_again_after_a_refusal(self) -> None:
        Guarded.seen, Guarded.accepted = [], "two"
        tokens = ["two\n", "one", "two", "one", "one"]
        with Client(self.url, token_source=lambda: tokens.pop(0)) as client:
            client.info()
            client.info()
            with self.assertRaises(Problem):
                client.info()
        self.assertEqual((Guarded.seen, tokens), (["two", "one", "two", "one"], []))

    def test_so_is_a_coroutine_with_asyncio(self) -> None:
        Guarded.seen, Guarded.accepted = [], "two"
        tokens = ["one", "two"]

        async def source() -> str:
            return tokens.pop(0)

        async def run() -> None:
            async with aio.Client(self.url, token_source=source) as client:
                await client.info()

        asyncio.run(run())
        self.assertEqual(Guarded.seen, ["one", "two"])
        with self.assertRaisesRegex(TypeError, "deltaq.aio"):
            Client(self.url, token_source=source).info()

    def test_an_error_of_a_source_may_pass(self) -> None:
        def source() -> str:
            raise OSError("no identity provider")

        with self.assertRaisesRegex(TokenError, "no identity provider") as failed:
            Client(self.url, token_source=source).info()
        self.assertEqual((failed.exception.is_temporary, failed.exception.is_retryable), (True, False))

    def test_a_client_has_one_token(self) -> None:
        with self.assertRaises(FileNotFoundError):
            Client(self.url, token_file=self.file)
        with self.assertRaisesRegex(ValueError, "only one of"):
            Client(self.url, token="one", token_file=self.file)
        Guarded.seen, Guarded.accepted = [], "two"
        with self.assertRaises(Problem), Client(self.url, token="one\n") as client:
            client.info()
        self.assertEqual(Guarded.seen, ["one"])


class Paths(unittest.TestCase):
    def test_a_name_that_a_path_loses_is_refused_before_anything_is_sent(self) -> None:
        client = Client("http://127.0.0.1:1")
        for name in ("", ".", "..", "a/../prices", "a//b", "/"):
            for call in (Queue.delete_queue, Queue.pause, Queue.status, Queue.items, Queue.purge):
                with self.assertRaisesRegex(ValueError, "is no name"):
                    call(client.queue(name))
            with self.assertRaisesRegex(ValueError, "is no name"):
                aio.Queue(aio.Client("http://127.0.0.1:1"), name).delete_queue().send(None)
            with self.assertRaisesRegex(ValueError, "is no name"):
                calls.index_values("prices", name)
        self.assertEqual(calls.status("%2e").target, "/v1/queues/%252e/status")

    def test_no_key_is_a_part_of_a_path(self) -> None:
        for key in ("..", "a/..", "/", "%2E"):
            lists: list[calls.Call[object]] = [calls.history("prices", key), calls.explain("prices", key), calls.item("prices", key)]
            lists += [calls.latest_object("prices", key), calls.known_object("prices", key)]
            paths = [call.target.split("?")[0] for call in lists]
            self.assertEqual(paths, [f"/v1/queues/prices/{call}" for call in ("history", "explain", "item", "object", "object")])


class Connections(unittest.TestCase):
    def test_a_process_may_have_many_descriptors(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * DESCRIPTORS), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        with contextlib.ExitStack() as stack:
            for _ in range(DESCRIPTORS):
                stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            client = stack.enter_context(Client(stack.enter_context(serving(Info))))
            # The second call uses the connection of the first one again.
            self.assertEqual([client.info(), client.info()], [{}, {}])


if __name__ == "__main__":
    unittest.main()
