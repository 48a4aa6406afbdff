package example.deltaq.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.deltaq.Client;
import example.deltaq.Job;
import example.deltaq.Json;
import example.deltaq.Queue;
import example.deltaq.Reject;
import example.deltaq.test.DeltaqExtension;
import example.deltaq.test.DeltaqServer;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentSkipListSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@ExtendWith(DeltaqExtension.class)
@Timeout(60)
class ListenersTest {
    record Offer(String key, int price) {}

    @Configuration(proxyBeanMethods = false)
    static class Application {
        final ConcurrentSkipListSet<String> seen = new ConcurrentSkipListSet<>();

        @DeltaqListener(queue = "${offers.queue}", concurrency = "2", deleted = false)
        void store(Offer offer, Job job) {
            if (offer.price() < 0) {
                throw new Reject("a negative price");
            }
            seen.add(job.key() + " " + offer.price());
        }

        @DeltaqListener(queue = "${offers.queue}-later", leaseDuration = "1m", breaker = "5")
        CompletableFuture<Void> later(Json object) {
            return CompletableFuture.runAsync(() -> seen.add(object.text()));
        }

        @Bean
        DeltaqWorkerCustomizer named() {
            return (queue, options) -> options.name("worker of " + queue);
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class Registry {
        @Bean
        MeterRegistry registry() {
            return new SimpleMeterRegistry();
        }
    }

    static class Wrong {
        @DeltaqListener(queue = "q")
        void two(Offer offer, String other) {}
    }

    private static ApplicationContextRunner runner(DeltaqServer server, Queue queue) {
        return new ApplicationContextRunner().withConfiguration(AutoConfigurations.of(DeltaqAutoConfiguration.class))
                .withPropertyValues("deltaq.url=" + server.url(), "offers.queue=" + queue.name(), "deltaq.grace=2s");
    }

    @Test
    void methodsAreCalledForChangedKeys(DeltaqServer server, Queue queue, Client client) {
        Queue later = client.queue(queue.name() + "-later");
        queue.add(List.of(new Offer("a", 1), new Offer("b", -1)));
        queue.update(new Offer("c", 2));
        queue.deleteKey("c");
        later.add(Map.of("key", "x"));
        runner(server, queue).withUserConfiguration(Application.class, Registry.class).run(context -> {
            assertNull(context.getStartupFailure());
            Application application = context.getBean(Application.class);
            while (queue.status().leased() + queue.status().ready() + later.status().ready() + later.status().leased() > 0) {
                Thread.sleep(10);
            }
            assertEquals(List.of("a 1", "{\"key\":\"x\"}"), List.copyOf(application.seen));
            assertEquals("a negative price", queue.item("b").lastError());
            assertEquals("worker of " + queue.name(), queue.workers().iterator().next().worker());
            context.getBean(Client.class).queue(queue.name()).status();
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertTrue(registry.get("deltaq.jobs").tags("queue", queue.name(), "outcome", "reject").timer().count() >= 1);
            assertTrue(registry.get("deltaq.calls").tags("call", "status").timer().count() >= 1);
        });
        assertEquals(List.of(), queue.workers().toList(), "the workers have ended");
    }

    @Test
    void theLibrariesOfTelemetryAreOptional(DeltaqServer server, Queue queue) {
        runner(server, queue).withClassLoader(new FilteredClassLoader("io.micrometer", "io.opentelemetry")).run(context -> {
            assertNull(context.getStartupFailure());
            context.getBean(Client.class).ready();
            assertTrue(context.getBean(DeltaqListeners.class).isRunning());
        });
    }

    @Test
    void listenersCanBeSwitchedOff(DeltaqServer server, Queue queue) {
        runner(server, queue).withPropertyValues("deltaq.listeners=false").withUserConfiguration(Application.class)
                .run(context -> assertFalse(context.containsBean("deltaqListeners")));
    }

    @Test
    void aMethodThatCannotBeAListenerIsAnErrorAtTheStart(DeltaqServer server, Queue queue) {
        runner(server, queue).withBean(Wrong.class).run(context -> {
            Throwable failure = context.getStartupFailure();
            while (failure.getCause() != null) {
                failure = failure.getCause();
            }
            assertTrue(failure.getMessage().contains("must have a Job"), failure.getMessage());
        });
    }
}
