"""Tests of what is logged while no server answers."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import logging
import pathlib
import socket
import ssl
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import httpx

from deltaq import BadReply, Client, ConnectionLost, Context, Error, Informer, Item, Problem, Reflector, Replace, RetryOptions, Worker, aio, calls
from deltaq.deltaqtest import Server
from deltaq.outage import LOG_SECONDS, MOVING_FAILURES, Outage
from deltaq.retry import Attempts
from deltaq.transport import Cancel

PATIENCE = 20.0
#: Repeats without much of a wait.
QUICK = RetryOptions(first=0.01, max=0.01)
#: Repeats after a long pause.
SLOW = RetryOptions(first=60.0, max=60.0, random=lambda: 1.0)
#: A certificate that nobody has signed, with its key.
SELF_SIGNED = pathlib.Path(__file__).parent / "self-signed.pem"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def ignore(item: Item, context: Context) -> None:
    pass


class Records(logging.Handler):
    """The log, as lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + PATIENCE
        while not any(text in line for line in self.lines):
            if time.monotonic() > end:
                raise AssertionError(f"{text!r} is not in {self.lines}")
            time.sleep(0.01)

    async def wait_for_async(self, text: str) -> None:
        await asyncio.to_thread(self.wait_for, text)


class Logged(unittest.TestCase):
    def setUp(self) -> None:
        self.log = Records()
        logger = logging.getLogger("deltaq")
        self.addCleanup(logger.setLevel, logger.level)
        self.addCleanup(logger.removeHandler, self.log)
        logger.addHandler(self.log)
        logger.setLevel(logging.INFO)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def refused(self, rest: str) -> str:
        return f"WARNING can't reach {self.url} (connection refused); {rest}"


class Rows(Logged):
    """The rows of failures of a client."""

    def setUp(self) -> None:
        super().setUp()
        self.now = 0.0
        self.outage = Outage(["http://a"], lambda: self.now)
        self.attempts = Attempts(QUICK, for_ever=True)

    def fails(self, error: Error, call: calls.Call[Any] | None = None) -> int:
        """The number of new lines."""
        before = len(self.log.lines)
        self.outage.repeats(error, call or calls.pop("q", id="secret"), self.attempts)
        return len(self.log.lines) - before

    def test_a_row_is_logged_at_once_and_then_once_a_minute(self) -> None:
        said = []
        for now in (0.0, 1.0, LOG_SECONDS - 1, LOG_SECONDS, LOG_SECONDS + 1, 2 * LOG_SECONDS):
            self.now = now
            said.append(self.fails(ConnectionLost("can't reach http://a:80 (timed out)")))
        self.assertEqual(said, [1, 0, 0, 1, 0, 1])
        self.assertEqual(self.log.lines[0], 'WARNING can\'t reach http://a:80 (timed out); the pop of the queue "q" is repeated')

    def test_the_end_of_a_row_is_logged_once_and_the_next_row_at_once(self) -> None:
        self.outage.answered()
        self.fails(ConnectionLost("x"))
        self.outage.answered()
        self.outage.answered()
        self.fails(ConnectionLost("y"))
        self.assertEqual([line.split()[0] for line in self.log.lines], ["WARNING", "INFO", "WARNING"])
        self.assertEqual(self.log.lines[1], "INFO http://a:80 answers again")

    def test_what_says_that_a_server_is_at_work_is_not_logged(self) -> None:
        moving = Problem(503, {"code": "not-owner", "retryable": True})
        self.assertEqual((self.fails(Problem(429, {"code": "queue-full", "retryable": True})), self.fails(moving)), (0, 0))
        self.attempts.failures = MOVING_FAILURES
        self.assertEqual(self.fails(moving), 1)

    def test_a_defect_names_the_server_and_no_id_of_a_pop(self) -> None:
        self.fails(Problem(503, {"code": "recovering", "detail": "the server loads its queues"}))
        self.assertEqual(self.log.lines, ['WARNING http://a:80: 503 recovering: the server loads its queues; the pop of the queue "q" is repeated'])
        self.assertNotIn("secret", calls.pop("q", id="secret").label)

    def test_calls_are_named(self) -> None:
        named = [calls.replace("q", []), calls.settings("q"), calls.get("q"), calls.put_settings("q"), calls.info(), calls.redrive("q", all=True)]
        expected = ['the replace of the queue "q"', 'the settings of the queue "q"', 'the get of the queue "q"', 'the put_settings of the queue "q"']
        self.assertEqual([call.label for call in named], [*expected, "the call info", 'the redrive of the queue "q"'])


class Away(Logged):
    """A server that is not there."""

    def test_a_call_says_for_how_long_it_is_repeated(self) -> None:
        retry = RetryOptions(attempts=3, first=0.01, total=30)
        with self.assertRaises(ConnectionLost) as lost:
            Client(self.url, retry=retry).queue("q").add({"key": "a"})
        line = self.refused('the add of the queue "q" is repeated for up to 30 s, at most 2 times')
        self.assertEqual(self.log.lines, [line])
        self.assertEqual(str(lost.exception), f"can't reach {self.url} (connection refused)")

        async def run() -> None:
            async with aio.Client(self.url, retry=retry) as client:
                with self.assertRaises(ConnectionLost) as lost:
                    await client.queue("q").add({"key": "a"})
                self.assertEqual(str(lost.exception), f"can't reach {self.url} (connection refused)")

        asyncio.run(run())
        self.assertEqual(self.log.lines, [line, line])

    def test_a_url_without_a_port_is_shown_with_the_port_that_was_used(self) -> None:
        with self.assertRaisesRegex(ConnectionLost, r"http://127\.0\.0\.1:80 "):
            Client("http://127.0.0.1", retry=RetryOptions(attempts=1)).info()

    def worked(self, run: Callable[[], None]) -> None:
        """What a worker says if it stops while there is no server."""
        began = time.monotonic()
        run()
        self.assertLess(time.monotonic() - began, 4.0)
        self.assertEqual(self.log.lines, [self.refused('the pop of the queue "q" is repeated')])

    def test_a_worker_says_it_and_stops_at_once_because_it_has_sent_nothing(self) -> None:
        def run() -> None:
            worker = Worker(Client(self.url, retry=SLOW).queue("q"), ignore)
            thread = threading.Thread(target=worker.run, daemon=True)
            thread.start()
            self.log.wait_for("repeated")
            worker.stop()
            thread.join()

        self.worked(run)

    def test_the_same_for_asyncio(self) -> None:
        async def run() -> None:
            async with aio.Client(self.url, retry=SLOW) as client:
                worker = aio.Worker(client.queue("q"), ignore)
                task = asyncio.create_task(worker.run())
                await self.log.wait_for_async("repeated")
                worker.stop()
                await task

        self.worked(lambda: asyncio.run(run()))

    def test_an_informer_and_a_reflector_say_it_and_that_the_server_answers_again(self) -> None:
        client = Client(self.url, retry=QUICK)
        with Informer(client.queue("q")) as informer:
            self.log.wait_for("the watch of")
            self.assertFalse(informer.wait_for_sync(timeout=0.01))
            with Server(listen=f"127.0.0.1:{self.port}"):
                self.log.wait_for("answers again")
                self.log.wait_for("queue q does not exist yet")
                Client(self.url).queue("q").add({"key": "a"})
                self.assertTrue(informer.wait_for_sync(timeout=PATIENCE))
                own = [line for line in self.log.lines if self.url in line]
                self.assertEqual(own, [self.refused('the watch of the queue "q" is repeated'), f"INFO {self.url} answers again"])
                self.assertEqual([line for line in self.log.lines if "exist" in line], ["WARNING queue q does not exist yet"])
        self.log.lines.clear()
        reflector = Reflector(Client(self.url, retry=QUICK).queue("q"), "erp")
        threading.Thread(target=self.reflect, args=[reflector], daemon=True).start()
        self.log.wait_for(self.refused("the get of the queue"))
        reflector.stop()

    @staticmethod
    def reflect(reflector: Reflector) -> None:
        with contextlib.suppress(Error):
            reflector.apply(Replace([{"key": "a"}]))

    def test_so_do_those_of_asyncio(self) -> None:
        async def run() -> None:
            async with aio.Client(self.url, retry=QUICK) as client:
                async with aio.Informer(client.queue("q")):
                    await self.log.wait_for_async("the watch of")
                    with Server(listen=f"127.0.0.1:{self.port}"):
                        await self.log.wait_for_async("answers again")
                        await self.log.wait_for_async("queue q does not exist yet")
                        task = asyncio.create_task(aio.Reflector(client.queue("q"), "erp").apply(Replace([{"key": "a"}])))
                        self.assertEqual((await task).queued, 1)
                self.log.lines.clear()
                task = asyncio.create_task(aio.Reflector(client.queue("q"), "erp").apply(Replace([])))
                await self.log.wait_for_async(self.refused("the get of the queue"))
                task.cancel()

        asyncio.run(run())

    def test_a_pop_that_may_have_leased_keys_is_repeated_at_the_end_and_the_last_error_is_logged(self) -> None:
        class Silent(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                pops.append(self.path)

            def log_message(self, format: str, *args: object) -> None:
                pass

        pops: list[str] = []
        with http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Silent) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            worker = Worker(Client(self.url, retry=QUICK).queue("q"), ignore)
            object.__setattr__(worker.settings, "last_calls_seconds", 0.3)
            thread = threading.Thread(target=worker.run, daemon=True)
            thread.start()
            self.log.wait_for("repeated")
            worker.stop()
            thread.join()
            server.shutdown()
        self.assertIn("wait=0us", pops[-1])
        expected = f"there was no complete reply from {self.url} (RemoteDisconnected: Remote end closed connection without response)"
        begin = "WARNING the last pop of queue q got no reply; keys that it has leased are delivered again when their leases expire: "
        self.assertEqual(self.log.lines[-1], begin + expected)
        self.assertEqual([line for line in self.log.lines if "id=" in line], [])


class Tls(Logged):
    """An address that does not speak TLS, or whose certificate nobody has signed."""

    def check(self, url: str, text: str) -> None:
        retry = RetryOptions(first=0.01, max=0.01, total=60)
        with self.assertRaisesRegex(ConnectionLost, text) as lost:
            Client(url, retry=retry).info()
        self.assertEqual((lost.exception.is_retryable, lost.exception.is_temporary, lost.exception.is_outcome_unknown), (False, True, False))

        async def run() -> None:
            async with aio.Client(url, retry=retry) as client:
                with self.assertRaisesRegex(ConnectionLost, text) as lost:
                    await client.info()
                self.assertFalse(lost.exception.is_retryable)

        asyncio.run(run())
        self.assertEqual(self.log.lines, [])
        with Informer(Client(url, retry=retry).queue("q")):
            self.log.wait_for("the watch of")

    def test_a_server_without_tls(self) -> None:
        class Plain(http.server.BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Plain) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            reason = "(WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE)"
            self.check(f"https://127.0.0.1:{self.port}", rf"can't reach https://127\.0\.0\.1:\d+ \({reason}\); does the server speak TLS\?")
            server.shutdown()

    def test_a_certificate_that_cant_be_verified(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(SELF_SIGNED)
        with http.server.ThreadingHTTPServer(("127.0.0.1", self.port), http.server.BaseHTTPRequestHandler) as server:
            server.handle_error = lambda *_: None  # type: ignore[method-assign]
            server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.check(f"https://localhost:{self.port}", r"\(CERTIFICATE_VERIFY_FAILED: self.signed certificate\); ssl_context sets")
            server.shutdown()


class LogOfHttpx(unittest.TestCase):
    def test_only_other_requests_are_in_the_log_of_httpx(self) -> None:
        async def run() -> None:
            async with aio.Client(server.url) as client, httpx.AsyncClient() as other:
                queue = client.queue("q")
                await queue.add({"key": "a"})
                await queue.pop(id="secret")
                await other.get(server.url + "/livez")

        with Server() as server, self.assertLogs("httpx", "INFO") as logs:
            asyncio.run(run())
        self.assertEqual(len(logs.output), 1, logs.output)
        self.assertIn("/livez", logs.output[0])


class Unsent(unittest.TestCase):
    def test_attempts_know_whether_anything_was_sent(self) -> None:
        attempts = Attempts(QUICK, for_ever=True)
        self.assertFalse(attempts.is_unsent)
        attempts.begins()
        attempts.wait_after(ConnectionLost(was_sent=False))
        self.assertTrue(attempts.is_unsent)
        attempts.begins()
        self.assertFalse(attempts.is_unsent)
        attempts.wait_after(BadReply("<html>"))
        attempts.begins()
        attempts.wait_after(ConnectionLost(was_sent=False))
        self.assertFalse(attempts.is_unsent)

    def test_a_bad_reply_does_not_show_the_id_of_a_pop(self) -> None:
        class Wrong(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Wrong) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            client = Client(f"http://127.0.0.1:{server.server_port}")
            with self.assertRaises(BadReply) as raised:
                client.send(calls.pop("q", id="secret"), cancel=Cancel())
            server.shutdown()
        self.assertEqual(str(raised.exception), "the reply to the pop of the queue \"q\" does not match the API: KeyError('items')")


if __name__ == "__main__":
    unittest.main()
