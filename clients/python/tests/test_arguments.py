"""Tests of mistakes that are seen where they are made."""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
import unittest
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import deltaq.otel
from deltaq import Change, Client, Context, Handler, Informer, Item, Queue, Reflector, Replace, Worker, aio, calls


def work(item: Item, context: Context) -> None:
    pass


def generate(entry: object, is_in_initial_list: bool) -> Iterator[None]:
    yield


async def on_add(entry: object, is_in_initial_list: bool) -> None:
    pass


class Mistakes(unittest.TestCase):
    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.client: Any = stack.enter_context(Client())
        self.queue: Any = self.client.queue("q")
        self.aio_queue: Any = aio.Queue(unittest.mock.Mock(), "q")

    def refuses(self, text: str, call: Callable[..., object], *arguments: Any, error: type[Exception] = TypeError, **options: Any) -> None:
        with self.subTest(text), self.assertRaises(error) as refused:
            call(*arguments, **options)
        self.assertIn(text, str(refused.exception))

    def test_a_wrong_kind_of_queue(self) -> None:
        takers: list[tuple[Any, str, list[object]]] = [(Worker, "a worker", [work]), (Informer, "an informer", []), (Reflector, "a reflector", ["erp"])]
        for taker, name, rest in takers:
            end = f"{name} takes client.queue(name) of deltaq.Client"
            self.refuses(f"the queue is a deltaq.client.Client: {end}", taker, self.client, *rest)
            self.refuses(f"the queue is a deltaq.aio.client.Queue: {end}", taker, self.aio_queue, *rest)
            self.refuses(f"the queue is 'prices': {end}", taker, "prices", *rest)
            same = getattr(aio, taker.__name__)
            self.refuses(f"the queue is a deltaq.client.Queue: {name} takes client.queue(name) of deltaq.aio.Client", same, self.queue, *rest)

    def test_what_is_no_list_of_objects(self) -> None:
        self.refuses("replace takes a list of dicts, not a dict", self.queue.replace, {"key": "a"})
        self.refuses("replace takes a list of dicts, not a str", self.queue.replace, "text")
        self.refuses("replace takes a list of dicts, not a file: json.load(file) reads one", self.queue.replace, io.StringIO("[]"))
        self.refuses("replace takes a list of dicts, not a NoneType", self.queue.replace, None)
        self.refuses("add takes a dict or a list of dicts, not a str", self.queue.add, "text")
        self.refuses("add takes a dict or a list of dicts, not a NoneType", self.queue.add, None)
        self.refuses("update takes a dict or a list of dicts, not a int", self.queue.update, 7)
        self.refuses("delete takes a dict or a list of dicts, not a str: delete_key takes a key", self.queue.delete, "a")
        self.refuses("deltas takes a list of dicts, not a dict", self.queue.deltas, {"type": "Deleted", "key": "a"})
        self.refuses("seed takes a list of dicts, not a dict", self.queue.seed, {"object": {}})
        self.assertEqual(calls.replace("q", ({"key": key} for key in "ab")).body, b'{"key":"a"}\n{"key":"b"}\n{"$end":2}\n')

    def test_what_is_no_key(self) -> None:
        for call in (Queue.delete_key, Queue.add_key, Queue.item, Queue.explain, Queue.history, Queue.latest_object, Queue.known_object):
            self.refuses("the key is ['1']: it must be a text", call, self.queue, ["1"])
            self.refuses("the key is 1: it must be a text", call, self.queue, 1)

    def test_what_is_no_name(self) -> None:
        for client in (Client, aio.Client):
            self.refuses("the URL of the server is None: it must be a text such as http://localhost:7070", client, None)
        self.refuses("the name of the queue is None: it must be a text", self.client.queue, None)
        self.refuses("the name of the queue is None: it must be a text", aio.Queue, unittest.mock.Mock(), None)
        self.refuses("the source is None: it must be a text", Reflector, self.queue, None)

    def test_settings_of_a_worker(self) -> None:
        cases: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"concurrency": "3"}, TypeError, "concurrency must be a whole number, and it is '3'"),
            ({"concurrency": 1.5}, TypeError, "concurrency must be a whole number"),
            ({"concurrency": 0}, ValueError, "concurrency must be at least 1"),
            ({"lease_duration": "5"}, ValueError, "lease_duration: '5' is not a duration"),
            ({"lease_duration": []}, TypeError, "lease_duration: [] is not a duration"),
            ({"lease_duration": 0}, ValueError, "lease_duration must be more than 0"),
            ({"wait": -1}, ValueError, "wait must not be negative"),
            ({"grace": "10s"}, TypeError, "grace must be a number of seconds, and it is '10s'"),
        ]
        for options, error, text in cases:
            self.refuses(text, Worker, self.queue, work, error=error, **options)
            self.refuses(text, aio.Worker, self.aio_queue, work, error=error, **options)

    def test_settings_of_an_informer(self) -> None:
        self.refuses("the view is 'newest': it must be one of latest, known", Informer, self.queue, view="newest", error=ValueError)
        self.refuses("'5' is not a duration", Informer, self.queue, bookmark="5", error=ValueError)
        self.refuses("the view is 'newest'", aio.Informer, self.aio_queue, view="newest", error=ValueError)

    def test_a_handler_of_an_informer(self) -> None:
        self.refuses("the handler is None: expected a Handler, such as Handler(on_add=f)", Informer(self.queue).add_handler, None)
        self.refuses("expected a Handler", aio.Informer(self.aio_queue).add_handler(work).send, None)  # type: ignore[arg-type]
        self.refuses("must take an entry and whether it was in the initial list", Handler, on_add=lambda entry: None)
        self.refuses("must take the old and the new entry", Handler, on_update=lambda entry: None)
        self.refuses("must take an entry", Handler, on_delete=lambda: None)
        self.refuses("on_add is 'print': it must be a function", Handler, on_add="print")
        self.refuses("on_add on_add is a coroutine: an informer with threads can't await it", Informer(self.queue).add_handler, Handler(on_add=on_add))
        self.refuses("on_add generate is a generator", Handler, on_add=generate)
        Informer(self.queue).add_handler(Handler(on_add=print, on_update=unittest.mock.Mock(), on_delete=print))

    def test_an_entry_of_a_source(self) -> None:
        text = "expected Replace or Change"
        for entry in ([{"key": "a"}], {"key": "a"}, "a", [Change.deleted("a"), {"key": "a"}]):
            self.refuses(text, Reflector(self.queue, "erp").run, [entry])
            self.refuses(text, aio.Reflector(self.aio_queue, "erp").apply(entry).send, None)  # type: ignore[arg-type]
        self.refuses("Replace takes a list of dicts, not a dict", Reflector(self.queue, "erp").apply, Replace({"key": "a"}))  # type: ignore[dict-item]

    def test_traces_without_their_package(self) -> None:
        self.addCleanup(importlib.reload, deltaq.otel)
        with unittest.mock.patch.dict(sys.modules, opentelemetry=None):
            self.refuses("deltaq.otel needs opentelemetry-api: pip install 'deltaq[otel]'", importlib.reload, deltaq.otel, error=ModuleNotFoundError)


if __name__ == "__main__":
    unittest.main()
