package example.deltaq.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import example.deltaq.Client;
import example.deltaq.Job;
import example.deltaq.Json;
import example.deltaq.Queue;
import example.deltaq.QueueObject;
import example.deltaq.QueueSettings;
import example.deltaq.QueueStatus;
import example.deltaq.Reject;
import example.deltaq.test.DeltaqExtension;
import example.deltaq.test.DeltaqServer;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import java.util.concurrent.SubmissionPublisher;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.aop.framework.autoproxy.BeanNameAutoProxyCreator;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Scope;
import org.springframework.context.annotation.ScopedProxyMode;

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

        @DeltaqListener(queue = "${offers.queue}-later", leaseDuration = "1m", breaker = "5", deleted = false)
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

    /** Methods that can't be listeners. */
    static class Wrong {
        static class TwoObjects {
            @DeltaqListener(queue = "q")
            void listen(Offer offer, Application other) {}
        }

        static class NoObject {
            @DeltaqListener(queue = "q", deleted = false)
            void listen(String object) {}
        }

        static class Deletions {
            @DeltaqListener(queue = "q")
            void listen(Offer offer) {}
        }

        static class Later {
            @DeltaqListener(queue = "q")
            Future<Void> listen(Job job) {
                return null;
            }
        }

        static class Reactive {
            @DeltaqListener(queue = "q")
            SubmissionPublisher<Void> listen(Job job) {
                return null;
            }
        }

        static class Number {
            @DeltaqListener(queue = "q", concurrency = "many")
            void listen(Job job) {}
        }
    }

    /** Has the method of {@link Listening}, which a proxy with interfaces needs. */
    interface Listens {
        void listen(Job job);
    }

    static class Listening implements Listens {
        static final Set<String> QUEUES = ConcurrentHashMap.newKeySet();

        @Override
        @DeltaqListener(queue = "${offers.queue}")
        public void listen(Job job) {
            QUEUES.add(job.queue());
        }
    }

    /** Has a method that the proxy with its interfaces lacks. */
    static class Hidden implements Runnable {
        @Override
        public void run() {}

        @DeltaqListener(queue = "${offers.queue}")
        public void listen(Job job) {}
    }

    private static BeanNameAutoProxyCreator proxies() {
        BeanNameAutoProxyCreator creator = new BeanNameAutoProxyCreator();
        creator.setBeanNames("proxied");
        return creator;
    }

    @Configuration(proxyBeanMethods = false)
    static class Proxied {
        @Bean
        static BeanNameAutoProxyCreator creator() {
            return proxies();
        }

        @Bean
        Listens proxied() {
            return new Listening();
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class ProxiedWithoutTheMethod {
        @Bean
        static BeanNameAutoProxyCreator creator() {
            return proxies();
        }

        @Bean
        Runnable proxied() {
            return new Hidden();
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class Scoped {
        @Bean
        @Scope(scopeName = "singleton", proxyMode = ScopedProxyMode.TARGET_CLASS)
        Listening scoped() {
            return new Listening();
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class ScopedByInterface {
        @Bean
        @Scope(scopeName = "singleton", proxyMode = ScopedProxyMode.INTERFACES)
        Listening scoped() {
            return new Listening();
        }
    }

    static class Two extends Listening {
        static final AtomicInteger MADE = new AtomicInteger();

        Two() {
            MADE.incrementAndGet();
        }

        @DeltaqListener(queue = "${offers.queue}-other")
        public void other(Job job) {}
    }

    @Configuration(proxyBeanMethods = false)
    static class Prototypes {
        @Bean
        @Scope("prototype")
        Two two() {
            return new Two();
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class Untyped {
        @DeltaqListener(queue = "${offers.queue}")
        Object listen(Job job) {
            return CompletableFuture.failedFuture(new Reject("later"));
        }
    }

    static class Refused {
        @DeltaqListener(queue = "${refused.queue}")
        void listen(Job job) {}
    }

    static class Endless {
        final CountDownLatch begun = new CountDownLatch(1);

        @DeltaqListener(queue = "${offers.queue}")
        void listen(Job job) throws InterruptedException {
            begun.countDown();
            new CountDownLatch(1).await();
        }
    }

    record Unit(String key, List<Integer> prices) {}

    @Configuration(proxyBeanMethods = false)
    static class OwnJson {
        final AtomicInteger calls = new AtomicInteger();

        @Bean
        ObjectMapper mapper() {
            return new ObjectMapper().enable(SerializationFeature.WRITE_SINGLE_ELEM_ARRAYS_UNWRAPPED)
                    .enable(DeserializationFeature.ACCEPT_SINGLE_VALUE_AS_ARRAY);
        }

        @Bean
        DeltaqClientCustomizer counted() {
            return options -> options.middleware(next -> call -> {
                calls.incrementAndGet();
                next.invoke(call);
            });
        }
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
            await(queue);
            await(later);
            assertEquals(List.of("a 1", "{\"key\":\"x\"}"), List.copyOf(application.seen));
            assertEquals("a negative price", queue.item("b").lastError());
            assertEquals("worker of " + queue.name(), queue.workers().iterator().next().worker());
            context.getBean(Client.class).queue(queue.name()).status();
            MeterRegistry registry = context.getBean(MeterRegistry.class);
            assertTrue(registry.get("deltaq.jobs").tags("queue", queue.name(), "outcome", "reject").timer().count() >= 1);
            assertTrue(registry.get("deltaq.calls").tags("call", "status").timer().count() >= 1);
            assertEquals(2, registry.get("deltaq.worker.leases").tags("outcome", "ack").functionCounters().size(), "both workers are measured");
        });
        assertEquals(List.of(), queue.workers().toList(), "the workers have ended");
    }

    @Test
    void theLibrariesOfTelemetryAreOptional(DeltaqServer server, Queue queue) {
        runner(server, queue).withClassLoader(new FilteredClassLoader("io.micrometer", "io.opentelemetry",
                "org.springframework.boot.actuate", "org.springframework.boot.health")).run(context -> {
            assertNull(context.getStartupFailure());
            context.getBean(Client.class).ready();
            assertFalse(context.containsBean("deltaqHealthIndicator"));
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
        Map<Class<?>, String> wrong = Map.of(Wrong.TwoObjects.class, "must be a Job", Wrong.NoObject.class, "into a String",
                Wrong.Deletions.class, "isDeleted()", Wrong.Later.class, "CompletableFuture", Wrong.Reactive.class, "CompletableFuture",
                Wrong.Number.class, "concurrency = \"many\"");
        wrong.forEach((type, text) -> runner(server, queue).withBean(type).run(context -> {
            Throwable failure = context.getStartupFailure();
            while (!(failure instanceof IllegalStateException)) {
                failure = failure.getCause();
            }
            assertTrue(failure.getMessage().contains(text) && failure.getMessage().contains("listen"), failure.getMessage());
        }));
    }

    /** The status of the health indicator of Spring Boot 3 or 4, and its details. */
    private static String health(Object indicator) {
        if (indicator instanceof org.springframework.boot.actuate.health.HealthIndicator three) {
            return three.health().getStatus().getCode() + " " + three.health().getDetails();
        }
        var health = ((org.springframework.boot.health.contributor.HealthIndicator) indicator).health();
        return health.getStatus().getCode() + " " + health.getDetails();
    }

    @ParameterizedTest
    @ValueSource(strings = {"org.springframework.boot.actuate", "org.springframework.boot.health"})
    void aWorkerThatHasEndedWithAnErrorIsUnhealthy(String absent, DeltaqServer server, Queue queue) {
        ApplicationContextRunner runner = runner(server, queue).withClassLoader(new FilteredClassLoader(absent)).withBean(Refused.class)
                .withBean(DeltaqWorkerCustomizer.class, () -> (name, options) -> options.name("worker of " + name));
        runner.withPropertyValues("refused.queue=" + queue.name()).run(context -> {
            assertEquals("UP {}", health(context.getBean("deltaqHealthIndicator")));
            queue.putSettings(QueueSettings.builder().build());
            queue.close();
            // A worker of a queue that is closed ends as it should.
            Predicate<Thread> isWorker = thread -> thread.getName().equals("deltaq-worker of " + queue.name());
            while (Thread.getAllStackTraces().keySet().stream().anyMatch(isWorker)) {
                Thread.sleep(10);
            }
            assertEquals("UP {}", health(context.getBean("deltaqHealthIndicator")));
        });
        runner.withPropertyValues("refused.queue=No Name").run(context -> {
            while (health(context.getBean("deltaqHealthIndicator")).startsWith("UP")) {
                Thread.sleep(10);
            }
            String health = health(context.getBean("deltaqHealthIndicator"));
            assertTrue(health.startsWith("DOWN {Refused.listen (queue No Name)=400 invalid-parameter: "), health);
        });
        runner.withPropertyValues("refused.queue=a", "management.health.deltaq.enabled=false")
                .run(context -> assertFalse(context.containsBean("deltaqHealthIndicator")));
    }

    private static void await(Queue queue) throws InterruptedException {
        for (QueueStatus status = queue.status(); status.leased() + status.ready() > 0; status = queue.status()) {
            Thread.sleep(10);
        }
    }

    @ParameterizedTest
    @ValueSource(classes = {Proxied.class, Scoped.class, ScopedByInterface.class, Prototypes.class})
    void aBeanOfAnyKindHasOneWorkerForEachMethod(Class<?> kind, DeltaqServer server, Client client) throws Exception {
        Queue queue = client.queue("kinds-" + kind.getSimpleName().toLowerCase(Locale.ROOT));
        queue.add(Map.of("key", "a"));
        List<String> workers = new ArrayList<>();
        DeltaqWorkerCustomizer noted = (name, options) -> {
            options.name("worker-" + name);
            workers.add(name);
        };
        runner(server, queue).withUserConfiguration(kind).withBean(DeltaqWorkerCustomizer.class, () -> noted).run(context -> {
            assertNull(context.getStartupFailure());
            await(queue);
            assertTrue(Listening.QUEUES.contains(queue.name()));
            assertEquals(kind == Prototypes.class ? List.of(queue.name(), queue.name() + "-other") : List.of(queue.name()), workers.stream().sorted().toList());
            assertTrue(Thread.getAllStackTraces().keySet().stream()
                    .anyMatch(thread -> thread.getName().equals("deltaq-worker-" + queue.name()) && !thread.isDaemon()), "the application goes on");
        });
        assertTrue(Two.MADE.get() <= 1, "both methods are called on the same bean");
    }

    @Test
    void aMethodThatAProxyLacksIsAnErrorAtTheStart(DeltaqServer server, Queue queue) {
        runner(server, queue).withUserConfiguration(ProxiedWithoutTheMethod.class).run(context -> assertNotNull(context.getStartupFailure()));
    }

    @Test
    void aResultThatComesLaterIsAwaited(DeltaqServer server, Queue queue) {
        queue.add(Map.of("key", "a"));
        runner(server, queue).withUserConfiguration(Untyped.class).run(context -> {
            await(queue);
            assertEquals("later", queue.item("a").lastError());
        });
    }

    @Test
    void aHandlerThatDoesNotReturnIsInterruptedAfterTheGrace(DeltaqServer server, Queue queue) {
        queue.add(Map.of("key", "a"));
        runner(server, queue).withPropertyValues("deltaq.grace=100ms").withBean(Endless.class).run(context -> context.getBean(Endless.class).begun.await());
        assertEquals("ready", queue.item("a").state());
        assertEquals(0, queue.item("a").failures());
    }

    @Test
    void theClientHasTheMapperAndTheOptionsOfTheApplication(DeltaqServer server, Queue queue) {
        runner(server, queue).withUserConfiguration(OwnJson.class, Registry.class).run(context -> {
            Queue own = context.getBean(Client.class).queue(queue.name());
            own.add(new Unit("a", List.of(5)));
            QueueObject object = own.latest().iterator().next();
            assertEquals("{\"key\":\"a\",\"prices\":5}", object.object().text());
            assertEquals(new Unit("a", List.of(5)), object.object(Unit.class));
            assertEquals(2, context.getBean(OwnJson.class).calls.get());
            assertEquals(1, context.getBean(MeterRegistry.class).get("deltaq.calls").tags("call", "add").timer().count());
        });
    }

    @Test
    void theStarterIsSmall() throws Exception {
        Path sources = Path.of("src/main/java");
        assumeTrue(Files.exists(sources));
        long lines = 0;
        try (Stream<Path> files = Files.walk(sources)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                lines += Files.readAllLines(file).size();
            }
        }
        assertTrue(lines < 500, lines + " lines");
    }

    @Test
    void theTokenIsNotShown() {
        assertFalse(new DeltaqProperties("http://a", "secret", null, true, Duration.ZERO).toString().contains("secret"));
    }
}
