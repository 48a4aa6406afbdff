"""Traces of OpenTelemetry, as middleware of clients and workers. The package opentelemetry-api is needed: `deltaq[otel]`.

The server stores the trace of each call that produces with the deltas that it queues. A worker links its spans to the spans of these calls: a link instead of
a parent, because the deltas of a key may come from many calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

try:
    from opentelemetry import trace
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("deltaq.otel needs opentelemetry-api: pip install 'deltaq[otel]'", name="opentelemetry") from error

from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import Attributes

from .calls import Call
from .errors import Problem
from .leases import Context
from .models import Item
from .outcomes import Outcome, outcome_of

F = TypeVar("F", bound=Callable[..., Any])

#: The calls that queue deltas. They have spans.
PRODUCING = frozenset({"add", "update", "delete", "deltas", "replace", "resync"})
#: The largest number of links of a span. Those of the newest deltas are kept.
LINKS_MAX = 128

_propagator = TraceContextTextMapPropagator()


def trace_calls(tracer_provider: TracerProvider | None = None) -> Callable[[F], F]:
    """Middleware of a client of threads or of asyncio: a producer span for each call that queues deltas, and the trace of the caller in every call. A call
    that has a `traceparent` of its own is left as it is. The default provider is the global one."""
    tracer = _tracer(tracer_provider)

    def around(next_: Callable[[Call[Any]], Any]) -> Callable[[Call[Any]], Any]:
        async def send_async(call: Call[Any]) -> Any:
            with _sent(tracer, call) as traced:
                return await next_(traced)

        def send(call: Call[Any]) -> Any:
            with _sent(tracer, call) as traced:
                return next_(traced)

        return send_async if inspect.iscoroutinefunction(next_) else send

    return around  # type: ignore[return-value]


def trace_handler(tracer_provider: TracerProvider | None = None) -> Callable[[F], F]:
    """Middleware of a worker of threads or of asyncio: a consumer span around the handler, with links to the spans of the calls that produced the deltas. The
    default provider is the global one."""
    tracer = _tracer(tracer_provider)

    def around(next_: Callable[[Item, Context], Any]) -> Callable[[Item, Context], Any]:
        async def handle_async(item: Item, context: Context) -> Any:
            with _processed(tracer, item, context) as returned:
                return returned(await next_(item, context))

        def handle(item: Item, context: Context) -> Any:
            with _processed(tracer, item, context) as returned:
                return returned(next_(item, context))

        return handle_async if inspect.iscoroutinefunction(next_) else handle

    return around  # type: ignore[return-value]


def _tracer(provider: TracerProvider | None) -> Tracer:
    return trace.get_tracer("deltaq", tracer_provider=provider)


def _attributes(queue: str, kind: str, name: str) -> dict[str, Any]:
    return {
        "messaging.system": "deltaq",
        "messaging.destination.name": queue,
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
    }


@contextmanager
def _span(tracer: Tracer, name: str, kind: SpanKind, attributes: Attributes, links: list[Link] | None = None) -> Iterator[Span]:
    """The current span. Its caller records exceptions, because an exception may be an outcome."""
    with tracer.start_as_current_span(name, kind=kind, attributes=attributes, links=links, record_exception=False, set_status_on_exception=False) as span:
        yield span


@contextmanager
def _sent(tracer: Tracer, call: Call[Any]) -> Iterator[Call[Any]]:
    """The call with the trace that it is part of."""
    if "traceparent" in call.headers:
        yield call
        return
    if call.name not in PRODUCING:
        yield _with_trace(call)
        return
    with _span(tracer, f"{call.name} {call.queue}", SpanKind.PRODUCER, _attributes(call.queue, "send", call.name)) as span:
        try:
            yield _with_trace(call)
        except BaseException as error:
            _failed(span, (isinstance(error, Problem) and error.code) or _name(error), str(error))
            span.record_exception(error)
            raise


def _with_trace(call: Call[Any]) -> Call[Any]:
    carrier: dict[str, str] = {}
    _propagator.inject(carrier)
    return call.with_headers(traceparent=carrier["traceparent"]) if "traceparent" in carrier else call


@contextmanager
def _processed(tracer: Tracer, item: Item, context: Context) -> Iterator[Callable[[Any], Any]]:
    """A span around the handler, and a function that gets what the handler returns."""
    links = _links(delta.traceparent for delta in item.deltas)
    attributes = _attributes(context.queue, "process", "process") | {"deltaq.key": item.key, "deltaq.attempt": item.attempt}
    if item.lease.worker is not None:
        attributes["messaging.client.id"] = item.lease.worker
    if len(item.deltas) > 1:
        attributes["messaging.batch.message_count"] = len(item.deltas)
    if len(links) > LINKS_MAX:
        attributes["deltaq.links_left_out"] = len(links) - LINKS_MAX
    with _span(tracer, f"process {context.queue}", SpanKind.CONSUMER, attributes, links[-LINKS_MAX:]) as span:

        def returned(result: Any) -> Any:
            _ended(span, item, context, result)
            return result

        try:
            yield returned
        except BaseException as error:
            _ended(span, item, context, error)
            if not isinstance(error, Outcome):
                span.record_exception(error)
            raise


def _links(traceparents: Iterable[str | None]) -> list[Link]:
    """Links to different spans, in order."""
    links = []
    for traceparent in dict.fromkeys(traceparents):
        found = trace.get_current_span(_propagator.extract({"traceparent": traceparent or ""})).get_span_context()
        if found.is_valid:
            links.append(Link(found))
    return links


def _ended(span: Span, item: Item, context: Context, result: object) -> None:
    if context.is_lost:
        _failed(span, "lease-lost", "the lease is lost")
        return
    outcome = outcome_of(result, item)
    span.set_attribute("deltaq.outcome", outcome.how)
    if outcome.how in ("nack", "reject"):
        is_raised = isinstance(result, BaseException) and not isinstance(result, Outcome)
        _failed(span, _name(result) if is_raised else outcome.how, outcome.error or "")


def _failed(span: Span, kind: str, description: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, description)


def _name(error: object) -> str:
    return type(error).__qualname__
