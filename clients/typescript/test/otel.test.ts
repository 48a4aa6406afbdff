/** Traces, against a server, with the exporter of the SDK that keeps spans in memory. */

import assert from "node:assert/strict";
import test, { type TestContext } from "node:test";

import { context as contexts, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";

import { Ack, type BatchHandler, DeltaqError, type Handler, Nack, type Queue, Reject, Release, Worker } from "../src/index.js";
import { traceCalls, traceHandler } from "../src/otel.js";
import { Server } from "./server.js";

const TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

contexts.setGlobalContextManager(new AsyncLocalStorageContextManager());

/** A queue whose client is traced, and what the exporter has got. */
class Traced {
    readonly exporter = new InMemorySpanExporter();
    // The SDK keeps 128 links by itself; the limit is that of the middleware.
    readonly tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(this.exporter)], spanLimits: { linkCountLimit: 1_000 } });
    readonly server: Server;
    readonly queue: Queue<any>;

    private constructor(server: Server) {
        this.server = server;
        this.queue = server.client({ middleware: [traceCalls(this)] }).queue<any>("q");
    }

    static async start(t: TestContext): Promise<Traced> {
        return new Traced(await Server.start(t));
    }

    spans(kind: SpanKind): ReadableSpan[] {
        return this.exporter.getFinishedSpans().filter(span => span.kind === kind);
    }

    /** The spans of the handlers of a worker that ends with the queue. */
    async work(handler: Handler<any>): Promise<ReadableSpan[]> {
        await this.queue.close({ atOnce: true });
        await new Worker(this.queue, handler, { name: "w1", middleware: [traceHandler(this)], onError: () => undefined }).run();
        return this.spans(SpanKind.CONSUMER);
    }

    async batches(handler: BatchHandler<any>): Promise<ReadableSpan[]> {
        await this.queue.close({ atOnce: true });
        await Worker.batches(this.queue, handler, { name: "w1", middleware: [traceHandler(this)] }).run();
        return this.spans(SpanKind.CONSUMER);
    }
}

function linked(span: ReadableSpan | undefined): string[] | undefined {
    return span?.links.map(({ context }) => context.spanId);
}

function idOf(span: ReadableSpan | undefined): string | undefined {
    return span?.spanContext().spanId;
}

test("a handler is linked to the calls that produced its deltas", async t => {
    const traced = await Traced.start(t);
    await traced.queue.add({ key: "a", n: 1 });
    await traced.queue.update({ key: "a", n: 2 });
    await traced.queue.update({ key: "a", n: 3 }, { traceparent: TRACEPARENT });
    const [span, ...others] = await traced.work(() => undefined);
    const [add, update, ...more] = traced.spans(SpanKind.PRODUCER);
    assert.deepEqual([others, more], [[], []]);
    assert.deepEqual(linked(span), [idOf(add), idOf(update), "b7ad6b7169203331"]);
    assert.deepEqual([add?.name, update?.name, span?.name], ["add q", "update q", "process q"]);
    const common = { "messaging.system": "deltaq", "messaging.destination.name": "q" };
    assert.deepEqual(add?.attributes, { ...common, "messaging.operation.type": "send", "messaging.operation.name": "add" });
    assert.deepEqual(span?.attributes, {
        ...common,
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.client.id": "w1",
        "messaging.batch.message_count": 3,
        "deltaq.key": "a",
        "deltaq.attempt": 1,
        "deltaq.outcome": "ack",
    });
});

test("calls are part of the trace of the caller", async t => {
    const traced = await Traced.start(t);
    const popped = await traced.tracerProvider.getTracer("test").startActiveSpan("outer", async outer => {
        await traced.queue.add({ key: "a" });
        assert.equal(traced.spans(SpanKind.PRODUCER)[0]?.parentSpanContext?.spanId, outer.spanContext().spanId);
        return traced.queue.pop();
    });
    const [add] = traced.spans(SpanKind.PRODUCER);
    assert.equal(popped.items[0]?.deltas[0]?.traceparent, `00-${add?.spanContext().traceId}-${idOf(add)}-01`);
    assert.equal(traced.spans(SpanKind.PRODUCER).length, 1);
});

test("a call that queues nothing sends the trace of the current span, and has no span", async t => {
    const { tracerProvider, exporter } = await Traced.start(t);
    const sent: (string | undefined)[] = [];
    const call = (name: string, headers: Record<string, string> = {}) => ({ method: "POST", queue: "q", name, headers, send: async () => undefined });
    const invoke = traceCalls({ tracerProvider })(async ({ headers }) => sent.push(headers["traceparent"]));
    await invoke(call("pop"));
    const outer = tracerProvider.getTracer("test").startSpan("outer");
    await contexts.with(trace.setSpan(contexts.active(), outer), async () => {
        await invoke(call("pop"));
        await invoke(call("add", { traceparent: TRACEPARENT }));
    });
    const { traceId, spanId } = outer.spanContext();
    assert.deepEqual(sent, [undefined, `00-${traceId}-${spanId}-01`, TRACEPARENT]);
    assert.deepEqual(exporter.getFinishedSpans(), []);
});

test("at most 128 links, and the others are counted", async t => {
    const traced = await Traced.start(t);
    for (let n = 0; n < 130; n += 1) {
        await traced.queue.update({ key: "a", n });
    }
    const [span] = await traced.work(() => undefined);
    assert.deepEqual(linked(span), traced.spans(SpanKind.PRODUCER).slice(2).map(idOf));
    assert.equal(span?.links.length, 128);
    assert.equal(span?.attributes["deltaq.links_left_out"], 2);
});

test("failures are errors", async t => {
    const traced = await Traced.start(t);
    await traced.queue.putSettings({ max_failures: 1 });
    await assert.rejects(traced.queue.add({}), DeltaqError);
    const [refused] = traced.spans(SpanKind.PRODUCER);
    assert.deepEqual([refused?.status.code, refused?.attributes["error.type"]], [SpanStatusCode.ERROR, "no-key"]);
    assert.deepEqual(refused?.events.map(({ name }) => name), ["exception"]);
    await traced.queue.add(["throws", "text", "rejected", "released"].map(key => ({ key })));
    const spans = await traced.work(({ key, attempt }) => {
        switch (key) {
            case "throws":
                throw new TypeError("no price");
            case "text":
                throw "a text";
            case "rejected":
                return Reject({ error: "never" });
            default:
                return attempt === 1 ? Release() : Ack();
        }
    });
    const told = spans.map(({ attributes: found, status }) => [found["deltaq.key"], found["deltaq.outcome"], found["error.type"], status.message]);
    assert.deepEqual(told, [
        ["throws", "nack", "TypeError", "no price"],
        ["text", "nack", "string", "a text"],
        ["rejected", "reject", "reject", "never"],
        ["released", "release", undefined, undefined],
        ["released", "ack", undefined, undefined],
    ]);
    assert.deepEqual(spans.map(({ events }) => events.length), [1, 1, 0, 0, 0]);
});

test("a batch has one span, with the outcome of its first key that has failed", async t => {
    const traced = await Traced.start(t);
    await traced.queue.putSettings({ max_failures: 1 });
    await traced.queue.add([{ key: "a" }, { key: "b" }]);
    await traced.queue.add({ key: "c" });
    const spans = await traced.batches(deliveries => deliveries.map(({ item: { key } }) => (key === "b" ? Nack({ error: "no price" }) : Ack())));
    const [span] = spans;
    assert.equal(spans.length, 1);
    assert.deepEqual(linked(span), traced.spans(SpanKind.PRODUCER).map(idOf));
    const { attributes: found = {}, status } = span ?? {};
    assert.deepEqual([found["messaging.batch.message_count"], found["deltaq.key"], found["deltaq.outcome"]], [3, undefined, "nack"]);
    assert.deepEqual(status, { code: SpanStatusCode.ERROR, message: "no price" });
});

test("a lost lease is an error, whatever the handler does", async t => {
    const traced = await Traced.start(t);
    const { queue } = traced;
    await queue.add([{ key: "returns" }, { key: "throws" }]);
    const spans = await traced.work(async ({ key, attempt }, { leaseId, signal }) => {
        if (attempt > 1) {
            return;
        }
        const lost = new Promise(resolve => signal.addEventListener("abort", resolve));
        await queue.release([leaseId]);
        await lost;
        if (key === "throws") {
            throw new Error("no price");
        }
    });
    const failed = spans.filter(({ status }) => status.code === SpanStatusCode.ERROR);
    const told = failed.map(({ attributes: found }) => [found["deltaq.key"], found["deltaq.outcome"], found["error.type"]]);
    assert.deepEqual(told.sort(), [["returns", undefined, "lease-lost"], ["throws", undefined, "lease-lost"]]);
    assert.match(failed[0]?.status.message ?? "", /^the lease .* is lost/);
});

test("what a handler does is part of its span", async t => {
    const traced = await Traced.start(t);
    await traced.queue.add({ key: "a" });
    const [span] = await traced.work(async () => {
        await new Promise(resolve => setImmediate(resolve));
        await traced.queue.status();
        traced.tracerProvider.getTracer("test").startSpan("inner").end();
    });
    assert.equal(traced.spans(SpanKind.INTERNAL)[0]?.parentSpanContext?.spanId, idOf(span));
});

test("the default is the global provider, which may be set later", async () => {
    const handle = traceHandler()(async () => []);
    const exporter = new InMemorySpanExporter();
    trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
    await handle([]);
    assert.deepEqual(exporter.getFinishedSpans().map(({ name }) => name), ["process "]);
});
