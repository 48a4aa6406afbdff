package example.deltaq.otel;

import example.deltaq.Call;
import example.deltaq.Delta;
import example.deltaq.Handler;
import example.deltaq.Invoke;
import example.deltaq.Job;
import example.deltaq.Nack;
import example.deltaq.Outcome;
import example.deltaq.ProblemException;
import example.deltaq.SettleAs;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.common.AttributesBuilder;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanBuilder;
import io.opentelemetry.api.trace.SpanContext;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.TextMapGetter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.UnaryOperator;

/**
 * Traces clients and workers with OpenTelemetry, which the application brings.
 *
 * <p>The server stores the trace of each call that produces with the changes that it queues. A worker links its spans to the spans of these calls: a link
 * instead of a parent, because the changes of a key may come from many calls.
 */
@SuppressWarnings("exports")
public final class Tracing {
    /** The largest number of links of a span. Those of the newest changes are kept. */
    private static final int LINKS_MAX = 128;
    private static final Set<String> PRODUCING = Set.of("add", "update", "delete", "deltas", "replace", "resync");
    private static final TextMapGetter<Map<String, String>> GETTER = new TextMapGetter<>() {
        @Override
        public Iterable<String> keys(Map<String, String> carrier) {
            return carrier.keySet();
        }

        @Override
        public String get(Map<String, String> carrier, String key) {
            return carrier.get(key);
        }
    };

    private Tracing() {}

    /**
     * Middleware of a client: a producer span for each call that queues changes, and the trace of the present context in every call. A call that has a
     * traceparent of its own is left as it is.
     *
     * @param telemetry creates the spans
     * @return the middleware
     */
    public static UnaryOperator<Invoke> traceCalls(OpenTelemetry telemetry) {
        Tracer tracer = telemetry.getTracer("deltaq");
        return next -> call -> {
            if (call.headers().containsKey("traceparent")) {
                next.invoke(call);
            } else if (PRODUCING.contains(call.name())) {
                traceCall(tracer, next, call);
            } else {
                setTrace(call);
                next.invoke(call);
            }
        };
    }

    private static void traceCall(Tracer tracer, Invoke next, Call call) {
        Span span = tracer.spanBuilder(call.name() + " " + call.queue()).setSpanKind(SpanKind.PRODUCER)
                .setAllAttributes(common(call.queue(), "send", call.name()).build()).startSpan();
        try (Scope scope = span.makeCurrent()) {
            setTrace(call);
            next.invoke(call);
        } catch (RuntimeException | Error e) {
            fail(span, kind(e), e);
            throw e;
        } finally {
            span.end();
        }
    }

    /**
     * Middleware of a worker: a consumer span around the handler, with links to the spans of the calls that produced the changes.
     *
     * @param telemetry creates the spans
     * @return the middleware
     */
    public static UnaryOperator<Handler> traceHandler(OpenTelemetry telemetry) {
        Tracer tracer = telemetry.getTracer("deltaq");
        return next -> job -> {
            Span span = span(tracer, job);
            Throwable thrown = null;
            try (Scope scope = span.makeCurrent()) {
                next.handle(job);
            } catch (Exception | Error e) {
                thrown = e;
                throw e;
            } finally {
                end(span, job, thrown);
            }
        };
    }

    private static Span span(Tracer tracer, Job job) {
        List<SpanContext> links = links(job);
        AttributesBuilder attributes = common(job.queue(), "process", "process").put("deltaq.key", job.key()).put("deltaq.attempt", job.attempt());
        if (job.lease().worker() != null) {
            attributes.put("messaging.client.id", job.lease().worker());
        }
        if (job.deltas().size() > 1) {
            attributes.put("messaging.batch.message_count", (long) job.deltas().size());
        }
        int leftOut = Math.max(links.size() - LINKS_MAX, 0);
        if (leftOut > 0) {
            attributes.put("deltaq.links_left_out", (long) leftOut);
        }
        SpanBuilder builder = tracer.spanBuilder("process " + job.queue()).setSpanKind(SpanKind.CONSUMER).setAllAttributes(attributes.build());
        links.subList(leftOut, links.size()).forEach(builder::addLink);
        return builder.startSpan();
    }

    private static AttributesBuilder common(String queue, String type, String name) {
        return Attributes.builder().put("messaging.system", "deltaq").put("messaging.destination.name", queue).put("messaging.operation.type", type)
                .put("messaging.operation.name", name);
    }

    /** Sends the trace of the present context with a call. */
    private static void setTrace(Call call) {
        W3CTraceContextPropagator.getInstance().inject(Context.current(), call.headers(), (headers, name, value) -> {
            if (name.equals("traceparent")) {
                headers.put(name, value);
            }
        });
    }

    /** Links to different spans, in the order of the changes. */
    private static List<SpanContext> links(Job job) {
        List<SpanContext> links = new ArrayList<>();
        Set<String> seen = new TreeSet<>();
        for (Delta delta : job.deltas()) {
            if (delta.traceparent() == null || !seen.add(delta.traceparent())) {
                continue;
            }
            Context found = W3CTraceContextPropagator.getInstance().extract(Context.root(), Map.of("traceparent", delta.traceparent()), GETTER);
            SpanContext link = Span.fromContext(found).getSpanContext();
            if (link.isValid()) {
                links.add(link);
            }
        }
        return links;
    }

    /** Sets the outcome of a handler. */
    private static void end(Span span, Job job, Throwable thrown) {
        if (job.isLeaseLost()) {
            span.setAttribute("error.type", "lease-lost");
            span.setStatus(StatusCode.ERROR, "the lease is lost");
        } else {
            String outcome = job.outcome(thrown);
            span.setAttribute("deltaq.outcome", outcome);
            if (outcome.equals(SettleAs.NACK) || outcome.equals(SettleAs.REJECT)) {
                // A Reject or a Nack may also be a cause of the exception.
                fail(span, Outcome.in(thrown) instanceof Nack || outcome.equals(SettleAs.REJECT) ? outcome : kind(thrown), thrown);
            }
        }
        span.end();
    }

    private static void fail(Span span, String type, Throwable thrown) {
        span.setAttribute("error.type", type);
        span.setStatus(StatusCode.ERROR, String.valueOf(thrown.getMessage()));
        span.recordException(thrown);
    }

    /** The code of a problem, or the type of another error. */
    private static String kind(Throwable thrown) {
        return thrown instanceof ProblemException problem ? problem.code() : thrown.getClass().getName();
    }
}
