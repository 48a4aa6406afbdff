/**
 * Traces of OpenTelemetry, as middleware of clients and workers. The package `@opentelemetry/api` is needed.
 *
 * The server stores the trace of each call that produces with the deltas that it queues. A worker links its spans to the spans of these calls: a link instead
 * of a parent, because the deltas of a key may come from many calls.
 */

import { type Attributes, type Link, type Span, type SpanContext, SpanKind, SpanStatusCode, trace, type TracerProvider } from "@opentelemetry/api";

import { DeltaqError, messageOf } from "./error.js";
import { LeaseLost } from "./leases.js";
import type { Middleware } from "./middleware.js";
import { type Outcome, Release, suited } from "./outcome.js";
import type { Invoke, InvokedCall } from "./transport.js";
import type { Delivery, Work } from "./worker.js";

/** The calls that queue deltas. They have spans. */
const PRODUCING = new Set(["add", "update", "delete", "deltas", "replace", "resync"]);
/** The largest number of links of a span. Those of the newest deltas are kept. */
const LINKS_MAX = 128;

export interface TraceOptions {
    /** Default: the global one. */
    tracerProvider?: TracerProvider | undefined;
}

/**
 * Middleware of a client: a producer span for each call that queues deltas, and the trace of the caller in every call. A call that has a `traceparent` of
 * its own is left as it is.
 */
export function traceCalls({ tracerProvider = trace.getTracerProvider() }: TraceOptions = {}): Middleware<Invoke> {
    const tracer = tracerProvider.getTracer("deltaq");
    return next => call => {
        if (call.headers["traceparent"] !== undefined) {
            return next(call);
        }
        if (!PRODUCING.has(call.name)) {
            return next(withTrace(call, trace.getActiveSpan()));
        }
        const attributes = common(call.queue, "send", call.name);
        return tracer.startActiveSpan(`${call.name} ${call.queue}`, { kind: SpanKind.PRODUCER, attributes }, async span => {
            try {
                return await next(withTrace(call, span));
            } catch (error) {
                fail(span, error instanceof DeltaqError ? error.code : nameOf(error), messageOf(error));
                record(span, error);
                throw error;
            } finally {
                span.end();
            }
        });
    };
}

/**
 * Middleware of a worker: a consumer span around the handler, with links to the spans of the calls that produced the deltas. A batch has one span, with the
 * outcome of its first key that has failed.
 */
export function traceHandler({ tracerProvider = trace.getTracerProvider() }: TraceOptions = {}): Middleware<Work> {
    const tracer = tracerProvider.getTracer("deltaq");
    return next => deliveries => {
        const queue = deliveries[0]?.context.queue ?? "";
        const links = linksOf(deliveries);
        const attributes = { ...common(queue, "process", "process"), ...ofKeys(deliveries) };
        if (links.length > LINKS_MAX) {
            attributes["deltaq.links_left_out"] = links.length - LINKS_MAX;
        }
        const options = { kind: SpanKind.CONSUMER, attributes, links: links.slice(-LINKS_MAX) };
        return tracer.startActiveSpan(`process ${queue}`, options, async span => {
            try {
                const outcomes = await next(deliveries);
                end(span, deliveries, outcomes);
                return outcomes;
            } catch (error) {
                if (deliveries.every(({ context }) => context.signal.aborted)) {
                    // The worker does not count this as a failure.
                    end(span, deliveries, deliveries.map(() => Release()));
                } else {
                    span.setAttribute("deltaq.outcome", "nack");
                    fail(span, nameOf(error), messageOf(error));
                }
                record(span, error);
                throw error;
            } finally {
                span.end();
            }
        });
    };
}

function common(queue: string, type: string, name: string): Attributes {
    return {
        "messaging.system": "deltaq",
        "messaging.destination.name": queue,
        "messaging.operation.type": type,
        "messaging.operation.name": name,
    };
}

function ofKeys(deliveries: readonly Delivery<unknown>[]): Attributes {
    // A key of a queue of mode keys has no deltas.
    const count = deliveries.reduce((sum, { item }) => sum + Math.max(1, item.deltas.length), 0);
    const [first] = deliveries;
    return {
        ...(first?.item.lease.worker != null && { "messaging.client.id": first.item.lease.worker }),
        ...(count > 1 && { "messaging.batch.message_count": count }),
        ...(first !== undefined && deliveries.length === 1 && { "deltaq.key": first.item.key, "deltaq.attempt": first.item.attempt }),
    };
}

/** Links to different spans, in order. */
function linksOf(deliveries: readonly Delivery<unknown>[]): Link[] {
    const traceparents = new Set(deliveries.flatMap(({ item }) => item.deltas.map(delta => delta.traceparent)));
    return [...traceparents].map(parse).filter(context => context !== undefined).map(context => ({ context }));
}

/** The span of a W3C traceparent. */
function parse(traceparent: string | null | undefined): SpanContext | undefined {
    const [, traceId = "", spanId = "", flags = ""] = /^[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})/.exec(traceparent ?? "") ?? [];
    const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
    return trace.isSpanContextValid(context) ? context : undefined;
}

function withTrace(call: InvokedCall, span: Span | undefined): InvokedCall {
    const context = span?.spanContext();
    if (context === undefined || !trace.isSpanContextValid(context)) {
        return call;
    }
    const flags = context.traceFlags.toString(16).padStart(2, "0");
    return { ...call, headers: { ...call.headers, traceparent: `00-${context.traceId}-${context.spanId}-${flags}` } };
}

/** Sets the outcome of a handler. */
function end(span: Span, deliveries: readonly Delivery<unknown>[], returned: readonly Outcome[]): void {
    if (failLost(span, deliveries)) {
        return;
    }
    const outcomes = deliveries.map(({ item }, index) => returned[index] && suited(returned[index], item));
    const failed = outcomes.find(outcome => outcome?.as === "nack" || outcome?.as === "reject");
    const shown = failed ?? outcomes[0];
    if (shown !== undefined) {
        span.setAttribute("deltaq.outcome", shown.as);
    }
    if (failed !== undefined) {
        fail(span, failed.as, failed.error ?? "");
    }
}

/** Whether the result of the handler does not count, because a lease is lost. */
function failLost(span: Span, deliveries: readonly Delivery<unknown>[]): boolean {
    const lost = deliveries.map(({ context }): unknown => context.signal.reason).find(reason => reason instanceof LeaseLost);
    if (lost !== undefined) {
        fail(span, "lease-lost", messageOf(lost));
    }
    return lost !== undefined;
}

function fail(span: Span, type: string, message: string): void {
    span.setAttribute("error.type", type);
    span.setStatus({ code: SpanStatusCode.ERROR, message });
}

function record(span: Span, error: unknown): void {
    span.recordException(error instanceof Error ? error : messageOf(error));
}

function nameOf(error: unknown): string {
    return error instanceof Error ? error.name : typeof error;
}
