"""Tests of connections."""

from __future__ import annotations

import contextlib
import http.server
import os
import resource
import threading
import unittest

from deltaq import Client, Queue, aio, calls

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


class Paths(unittest.TestCase):
    def test_a_name_that_a_path_loses_is_refused_before_anything_is_sent(self) -> None:
        client = Client("http://127.0.0.1:1")
        for name in ("", ".", "..", "a/../prices", "a//b", "/"):
            for call in (Queue.remove, Queue.add, Queue.status, Queue.items, Queue.purge):
                with self.assertRaisesRegex(ValueError, "is no name"):
                    call(client.queue(name))
            with self.assertRaisesRegex(ValueError, "is no name"):
                aio.Queue(aio.Client("http://127.0.0.1:1"), name).remove().send(None)
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
            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Info))
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            client = stack.enter_context(Client(f"http://127.0.0.1:{server.server_port}"))
            # The second call uses the connection of the first one again.
            self.assertEqual([client.info(), client.info()], [{}, {}])


if __name__ == "__main__":
    unittest.main()
