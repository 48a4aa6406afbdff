"""Tests of the traces, against a server, with the exporter of the SDK that keeps spans in memory."""

from __future__ import annotations

import asyncio
import unittest

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from deltaq import Client, Context, Item, Problem, Reject, Release, Worker, aio
from deltaq.deltaqtest import Server
from deltaq.otel import trace_calls, trace_handler

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traces(unittest.TestCase):
    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.client = Client(self.server.url, middleware=[trace_calls(self.provider)])
        self.addCleanup(self.client.close)
        self.queue = self.client.queue("q")

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind == kind]

    def work(self, handler: object) -> list[ReadableSpan]:
        self.queue.close(at_once=True)
        Worker(self.queue, handler, name="w1", middleware=[trace_handler(self.provider)]).run()  # type: ignore[arg-type]
        return self.spans(SpanKind.CONSUMER)

    def test_a_handler_is_linked_to_the_calls_that_produced_its_deltas(self) -> None:
        self.queue.add({"key": "a", "n": 1})
        self.queue.update({"key": "a", "n": 2})
        self.queue.update({"key": "a", "n": 3}, traceparent=TRACEPARENT)
        [span] = self.work(lambda item, context: None)
        add, update = self.spans(SpanKind.PRODUCER)
        self.assertEqual([link.context.span_id for link in span.links], [add.context.span_id, update.context.span_id, 0xB7AD6B7169203331])
        self.assertEqual((add.name, update.name, span.name), ("add q", "update q", "process q"))
        common = {"messaging.system": "deltaq", "messaging.destination.name": "q"}
        self.assertEqual(add.attributes, common | {"messaging.operation.type": "send", "messaging.operation.name": "add"})
        of_handler = {"messaging.operation.type": "process", "messaging.operation.name": "process", "messaging.client.id": "w1"}
        of_key = {"messaging.batch.message_count": 3, "deltaq.key": "a", "deltaq.attempt": 1, "deltaq.outcome": "ack"}
        self.assertEqual(span.attributes, common | of_handler | of_key)

    def test_calls_are_part_of_the_trace_of_the_caller(self) -> None:
        with self.provider.get_tracer("test").start_as_current_span("outer") as outer:
            self.queue.add({"key": "a"})
            popped = self.queue.pop()
        [add] = self.spans(SpanKind.PRODUCER)
        assert add.parent is not None
        self.assertEqual(add.parent.span_id, outer.get_span_context().span_id)
        traceparent = popped.items[0].deltas[0].traceparent or ""
        self.assertEqual(traceparent.split("-")[1:3], [f"{add.context.trace_id:032x}", f"{add.context.span_id:016x}"])

    def test_at_most_128_links_and_the_others_are_counted(self) -> None:
        for number in range(130):
            self.queue.update({"key": "a", "n": number})
        [span] = self.work(lambda item, context: None)
        self.assertEqual(len(span.links), 128)
        self.assertEqual([link.context.span_id for link in span.links], [call.context.span_id for call in self.spans(SpanKind.PRODUCER)[2:]])
        assert span.attributes is not None
        self.assertEqual(span.attributes["deltaq.links_left_out"], 2)

    def test_failures_are_errors(self) -> None:
        def handle(item: Item, _: Context) -> Reject | None:
            if item.key == "raises":
                raise ValueError("no price")
            if item.key == "released" and item.attempt == 1:
                raise Release
            return Reject("never") if item.key == "rejected" else None

        self.queue.put_settings({"max_failures": 1})
        with self.assertRaises(Problem):
            self.queue.add({})
        [refused] = self.spans(SpanKind.PRODUCER)
        assert refused.attributes is not None
        self.assertEqual((refused.status.status_code, refused.attributes["error.type"]), (StatusCode.ERROR, "no-key"))
        self.queue.add([{"key": "raises"}, {"key": "rejected"}, {"key": "released"}])
        seen = [(dict(span.attributes or {}), span.status) for span in self.work(handle)]
        reported = [(found["deltaq.key"], found["deltaq.outcome"], found.get("error.type"), status.description) for found, status in seen]
        self.assertEqual(
            reported,
            [
                ("raises", "nack", "ValueError", "ValueError: no price"),
                ("rejected", "reject", "reject", "never"),
                ("released", "release", None, None),
                ("released", "ack", None, None),
            ],
        )

    def test_the_same_for_asyncio(self) -> None:
        async def handle(item: Item, context: Context) -> None:
            with self.provider.get_tracer("test").start_as_current_span("inner"):
                await asyncio.sleep(0)

        async def run() -> None:
            async with aio.Client(self.server.url, middleware=[trace_calls(self.provider)]) as client:
                queue = client.queue("q")
                await asyncio.gather(queue.add({"key": "a"}), queue.add({"key": "b"}))
                await queue.close(at_once=True)
                await aio.Worker(queue, handle, concurrency=2, middleware=[trace_handler(self.provider)]).run()

        asyncio.run(run())
        handled = {span.context.span_id for span in self.spans(SpanKind.CONSUMER)}
        inner = [span.parent.span_id for span in self.spans(SpanKind.INTERNAL) if span.parent]
        self.assertEqual((len(handled), handled), (2, set(inner)))
        linked = {link.context.span_id for span in self.spans(SpanKind.CONSUMER) for link in span.links}
        self.assertEqual(linked, {span.context.span_id for span in self.spans(SpanKind.PRODUCER)})


if __name__ == "__main__":
    unittest.main()
