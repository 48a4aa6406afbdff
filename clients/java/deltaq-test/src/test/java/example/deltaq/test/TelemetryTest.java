package example.deltaq.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.deltaq.Client;
import example.deltaq.ClientOptions;
import example.deltaq.Nack;
import example.deltaq.ProblemException;
import example.deltaq.Queue;
import example.deltaq.Reject;
import example.deltaq.Worker;
import example.deltaq.WorkerOptions;
import example.deltaq.micrometer.Metrics;
import example.deltaq.otel.Tracing;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.context.Scope;
import io.opentelemetry.sdk.OpenTelemetrySdk;
import io.opentelemetry.sdk.testing.exporter.InMemorySpanExporter;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.SimpleSpanProcessor;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(DeltaqExtension.class)
@Timeout(60)
class TelemetryTest {
    private final InMemorySpanExporter spans = InMemorySpanExporter.create();
    private final OpenTelemetrySdk telemetry = OpenTelemetrySdk.builder()
            .setTracerProvider(SdkTracerProvider.builder().addSpanProcessor(SimpleSpanProcessor.create(spans)).build()).build();

    private static String text(SpanData span, String name) {
        return span.getAttributes().get(AttributeKey.stringKey(name));
    }

    private SpanData span(String name) {
        return spans.getFinishedSpanItems().stream().filter(each -> each.getName().equals(name)).findFirst().orElseThrow();
    }

    @Test
    void aConsumerSpanHasLinksToTheProducers(DeltaqServer server, Queue given) throws Exception {
        ClientOptions options = new ClientOptions().middleware(Tracing.traceCalls(telemetry));
        try (Client client = new Client(server.url(), options)) {
            Queue queue = client.queue(given.name());
            queue.add(Map.of("key", "a"));
            queue.update(Map.of("key", "a", "n", 1));
            Span outer = telemetry.getTracer("test").spanBuilder("outer").startSpan();
            try (Scope scope = outer.makeCurrent()) {
                queue.status();
                queue.add(Map.of("key", "b"));
            }
            queue.add(List.of(Map.of("key", "c"), Map.of("key", "d")));
            Worker worker = new Worker(queue, job -> {
                assertEquals(job.key().equals("a") ? 2 : 1, job.deltas().size());
                switch (job.key()) {
                    case "b" -> throw new IllegalStateException(new Reject("no"));
                    case "c" -> throw new IllegalStateException("later", new Nack("away").delay(Duration.ofHours(1)));
                    case "d" -> throw new java.io.IOException("away");
                    default -> {}
                }
            }, new WorkerOptions().name("w").middleware(Tracing.traceHandler(telemetry)));
            CompletableFuture<Void> end = worker.start();
            while (spans.getFinishedSpanItems().stream().filter(each -> each.getKind() == SpanKind.CONSUMER).count() < 4) {
                Thread.sleep(10);
            }
            worker.close();
            end.get();
            SpanData add = span("add " + queue.name());
            assertEquals(SpanKind.PRODUCER, add.getKind());
            assertEquals("send", text(add, "messaging.operation.type"));
            List<SpanData> handlers = spans.getFinishedSpanItems().stream().filter(each -> each.getKind() == SpanKind.CONSUMER).toList();
            SpanData first = handlers.get(0);
            assertEquals(List.of(add.getSpanContext().getSpanId(), span("update " + queue.name()).getSpanContext().getSpanId()),
                    first.getLinks().stream().map(link -> link.getSpanContext().getSpanId()).toList());
            assertEquals("a", text(first, "deltaq.key"));
            assertEquals("ack", text(first, "deltaq.outcome"));
            assertEquals("w", text(first, "messaging.client.id"));
            assertEquals("reject", text(handlers.get(1), "error.type"));
            assertEquals(StatusCode.ERROR, handlers.get(1).getStatus().getStatusCode());
            assertEquals(outer.getSpanContext().getTraceId(), handlers.get(1).getLinks().get(0).getSpanContext().getTraceId());
            // A nack is a failure, also if the handler has chosen it. Its type is that of the choice, also if it is a cause.
            assertEquals("nack", text(handlers.get(2), "error.type"));
            assertEquals(StatusCode.ERROR, handlers.get(2).getStatus().getStatusCode());
            assertEquals("java.io.IOException", text(handlers.get(3), "error.type"));
            assertThrows(ProblemException.class, () -> queue.add(Map.of("none", 1)));
            assertTrue(spans.getFinishedSpanItems().stream().anyMatch(each -> "no-key".equals(text(each, "error.type"))));
        }
    }

    @Test
    void callsAndHandlersAreMeasured(DeltaqServer server, Queue given) throws Exception {
        SimpleMeterRegistry registry = new SimpleMeterRegistry();
        try (Client client = new Client(server.url(), new ClientOptions().middleware(Metrics.measureCalls(registry)))) {
            Queue queue = client.queue(given.name());
            queue.add(List.of(Map.of("key", "a"), Map.of("key", "b")));
            assertThrows(ProblemException.class, () -> queue.add(Map.of("none", 1)));
            Worker worker = new Worker(queue, job -> {
                if (job.key().equals("b")) {
                    throw new Nack("away").delay(Duration.ofHours(1));
                }
            }, new WorkerOptions().middleware(Metrics.measureHandler(registry)));
            Metrics.bind(worker, queue.name(), registry);
            worker.start();
            // The results of the last settles come with the end of a pop that waits.
            while (queue.status().known() < 1 || queue.status().delayed() < 1) {
                Thread.sleep(10);
            }
            worker.close();
            assertEquals(1, registry.get("deltaq.calls").tags("call", "add", "outcome", "ok", "queue", queue.name()).timer().count());
            assertEquals(1, registry.get("deltaq.calls").tags("outcome", "no-key").timer().count());
            assertEquals(1, registry.get("deltaq.jobs").tags("outcome", "nack").timer().count());
            assertEquals(1.0, registry.get("deltaq.worker.leases").tags("outcome", "ack").functionCounter().count());
        }
    }
}
