package example.deltaq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests of the parts that make no calls. */
class PartsTest {
    private static final long SECOND = 1_000_000_000L;

    /**
     * Scripts of a breaker with the limit 3. The key and the outcome of a handler end with !, when a pause begins, with +, when the worker goes on, and with
     * neither. A number is the length of the pause in seconds, which passes.
     */
    @ParameterizedTest
    @ValueSource(strings = {
        "a:nack b:nack c:nack! 1 d:nack! 2 e:nack! 4 f:ack+ a:nack b:nack c:nack! 1",
        "a:nack a:nack a:nack a:nack b:nack c:nack!",
        "a:nack b:nack c:ack a:nack b:nack c:done a:nack b:nack c:reject a:nack b:nack c:release d:nack!",
        "a:nack b:nack c:nack! 1 a:release 1 a:release 1 a:nack! 2 b:reject+ c:nack",
        "a:nack b:nack c:nack! 1 x:nack! 2 x:nack! 4 x:nack! 8 x:nack! 16 x:nack! 32 x:nack! 60 x:nack! 60 x:done+"})
    void aBreakerPausesAndTriesOneKey(String script) {
        Breaker breaker = new Breaker(3);
        long now = 0;
        int number = 0;
        for (String step : script.split(" ")) {
            if (!step.contains(":")) {
                long end = now + Long.parseLong(step) * SECOND;
                assertEquals(end, breaker.next(now), step);
                assertFalse(breaker.mayStart(end - 1), step);
                assertTrue(breaker.mayStart(end), step);
                assertEquals(Clock.FAR, breaker.next(end), step);
                now = end;
                continue;
            }
            String[] parts = step.replaceAll("[!+]", "").split(":");
            String id = Integer.toString(++number);
            assertTrue(breaker.mayStart(now), step);
            breaker.started(id);
            assertFalse(breaker.isPaused() && breaker.mayStart(now), step);
            assertEquals(Breaker.Effect.NONE, breaker.ended(now, "another", "z", breaker.isPaused() ? "ack" : "release"), step);
            Breaker.Effect wanted = step.endsWith("!") ? Breaker.Effect.BEGINS : step.endsWith("+") ? Breaker.Effect.GOES_ON : Breaker.Effect.NONE;
            assertEquals(wanted, breaker.ended(now, id, parts[0], parts[1]), step);
        }
    }

    private static Job job(String id, long lengthMs, List<Delta> deltas) {
        Lease lease = new Lease(id, 1, null, Instant.EPOCH, lengthMs);
        return new Job(new PoppedItem("key-" + id, lease, 1, 0, false, deltas, null, null, null), "q");
    }

    private static Settled extension(String id, String result, Long expiresInMs) {
        return new Settled(id, "extend", result, null, null, null, null, null, null, expiresInMs, 2L, true);
    }

    @Test
    void aLeaseIsExtendedAfterAThirdAndLostBeforeItsEnd() {
        Leases leases = new Leases();
        Leases.Held held = leases.take(job("a", 30_000, List.of()), 0);
        assertEquals(10 * SECOND, leases.next);
        assertEquals(List.of(), leases.attend(10 * SECOND - 1).extend());
        Leases.Attention attention = leases.attend(10 * SECOND);
        assertEquals(List.of("a"), attention.extend());
        assertEquals(Duration.ofMillis(7_500), attention.patience());
        assertEquals(25 * SECOND, leases.next, "while an extension runs, only the loss needs attention");
        leases.notExtended(12 * SECOND);
        leases.attend(11 * SECOND);
        assertEquals(12 * SECOND, leases.next);
        assertEquals(List.of("a"), leases.attend(12 * SECOND).extend());
        assertEquals(List.of(), leases.extended(new SettledList(List.of(extension("a", "ok", 30_000L)), 0), 12 * SECOND));
        assertEquals(2, held.job.pendingDeltas());
        assertTrue(held.job.isObsolete());
        leases.attend(12 * SECOND);
        assertEquals(22 * SECOND, leases.next);
        leases.attend(22 * SECOND);
        assertEquals(List.of(held), leases.extended(new SettledList(List.of(extension("a", "stale", null)), 1), 22 * SECOND));
        assertEquals(Map.of(), leases.held);
        Leases.Held other = leases.take(job("b", 6_000, List.of()), 0);
        assertEquals(List.of(other), leases.attend(5 * SECOND).lost());
        Leases.Held ended = leases.take(job("c", 6_000, List.of()), 0);
        ended.isEnded = true;
        assertEquals(List.of(), leases.attend(60 * SECOND).lost(), "the server says whether the lease of a handler that has ended had ended");
    }

    @Test
    void anExtensionHasAtMostAThousandLeases() {
        Leases leases = new Leases();
        for (int index = 0; index < 1_500; index++) {
            leases.take(job("l" + index, 30_000, List.of()), 0);
        }
        assertEquals(1_000, leases.attend(10 * SECOND).extend().size());
        assertEquals(10 * SECOND, leases.next);
    }

    @Test
    void anExceptionSaysHowTheLeaseEnds() {
        Job keys = job("a", 1, List.of());
        Job delta = job("a", 1, List.of(new Delta("Added", 1, Instant.EPOCH, Json.of("{}"), false, null, 0, null)));
        assertEquals("{\"as\":\"ack\",\"lease_id\":\"a\"}", Documents.write(Outcome.settle(delta, null)));
        assertEquals("{\"as\":\"nack\",\"lease_id\":\"a\",\"error\":\"java.io.IOException: away\"}",
                Documents.write(Outcome.settle(delta, new CompletionException(new java.io.IOException("away")))));
        assertEquals("{\"as\":\"nack\",\"lease_id\":\"a\",\"delay\":\"31622400s\",\"floor\":true,\"error\":\"x\"}",
                Documents.write(Outcome.settle(delta, new RuntimeException(new Nack("x").delay(Duration.ofDays(999)).floor()))));
        assertEquals("{\"as\":\"nack\",\"lease_id\":\"a\",\"delay\":\"0s\"}", Documents.write(Outcome.settle(delta, new Nack((String) null).delay(Duration.ZERO))));
        assertEquals("{\"as\":\"reject\",\"lease_id\":\"a\",\"error\":\"no\"}", Documents.write(Outcome.settle(delta, new Reject("no"))));
        assertEquals("{\"as\":\"done\",\"lease_id\":\"a\",\"delay\":\"60s\"}", Documents.write(Outcome.settle(keys, new Done(Duration.ofMinutes(1)))));
        assertEquals("nack", delta.outcome(new Done()));
        assertEquals("{\"as\":\"release\",\"lease_id\":\"a\",\"hold\":{\"scope\":\"key\",\"for\":\"5s\"}}",
                Documents.write(Outcome.settle(delta, new Release(Hold.KEY, Duration.ofSeconds(5)))));
        String text = Outcome.settle(delta, new IllegalStateException("ü".repeat(9_999))).error();
        assertEquals(4096, text.getBytes(StandardCharsets.UTF_8).length);
        assertEquals("", text.replace("ü", ""), "a letter is never cut");
        Throwable endless = new RuntimeException() {
            @Override
            public synchronized Throwable getCause() {
                return new RuntimeException(this);
            }

            @Override
            public String toString() {
                throw new IllegalStateException("also this");
            }
        };
        assertEquals("nack", delta.outcome(endless));
        Throwable overflowing = new RuntimeException() {
            @Override
            public synchronized Throwable getCause() {
                return getCause();
            }

            @Override
            public String toString() {
                return toString();
            }
        };
        assertEquals(overflowing.getClass().getName(), Outcome.settle(delta, overflowing).error());
        Throwable silent = new RuntimeException() {
            @Override
            public String toString() {
                return null;
            }
        };
        assertEquals(silent.getClass().getName(), Outcome.settle(delta, silent).error());
    }

    @Test
    void anEntryHasALeaseOrLeases() {
        assertEquals("{\"as\":\"ack\",\"lease_ids\":[\"b\"]}", Documents.write(Settle.ack("a").withLeaseIds(List.of("b"))));
    }

    @Test
    void longTimesDoNotOverflow() {
        Duration forever = java.time.temporal.ChronoUnit.FOREVER.getDuration();
        assertEquals(Clock.FAR, Clock.after(Clock.now(), forever));
        assertEquals(Clock.FAR, Clock.after(Clock.FAR, Duration.ofSeconds(1)));
        assertEquals(3, Clock.after(1, Duration.ofNanos(2)));
        assertFalse(Retry.backoff(forever, forever, 1).isNegative());
        assertThrows(IllegalArgumentException.class, () -> new ClientOptions().replyTimeout(Duration.ZERO));
    }

    @Test
    void aStreamThatEndsBeforeItsBodyBeginsIsCancelled() {
        Bodies.Lines lines = new Bodies.Lines(new Servers.Server("http://a"), 10);
        lines.close();
        boolean[] isCancelled = {false};
        lines.onSubscribe(new java.util.concurrent.Flow.Subscription() {
            @Override
            public void request(long count) {
                throw new IllegalStateException("nobody reads");
            }

            @Override
            public void cancel() {
                isCancelled[0] = true;
            }
        });
        assertTrue(isCancelled[0]);
    }

    @Test
    void aLineThatDoesNotEndIsALostConnection() throws Exception {
        Bodies.Lines lines = new Bodies.Lines(new Servers.Server("http://a"), 10);
        lines.onSubscribe(new java.util.concurrent.Flow.Subscription() {
            @Override
            public void request(long count) {}

            @Override
            public void cancel() {}
        });
        for (String part : List.of("{\"long", "er\"\n{}\n", "0123456", "789", "0")) {
            lines.onNext(List.of(ByteBuffer.wrap(part.getBytes(StandardCharsets.UTF_8))));
        }
        assertEquals("{\"longer\"", lines.next(Duration.ofSeconds(1)));
        assertEquals("{}", lines.next(Duration.ofSeconds(1)));
        assertTrue(assertThrows(java.io.IOException.class, () -> lines.next(Duration.ofSeconds(1))).getMessage().contains("longer than 10 bytes"));
    }

    @Test
    void aWorkerOrInformerThatIsClosedBeforeItsThreadBeginsEndsWithoutAnError() throws Exception {
        Client client = new Client("http://localhost:1");
        Worker worker = new Worker(client.queue("q"), job -> {});
        worker.close();
        worker.start().get();
        Informer informer = new Informer(client.queue("q"));
        informer.close();
        informer.start().get();
    }

    @ParameterizedTest
    @CsvSource({"0, 0", "007, 7", "86401, 86400", "99999999999999999999999, 86400", "-1, 0", "soon, 0", "'', 0",
        "'Mon, 30 Nov 2026 10:00:30 GMT', 30", "'Mon, 30 Nov 2026 09:00:00 GMT', 0", "'Mon, 30 Nov 2099 09:00:00 GMT', 86400"})
    void retryAfterIsANumberOrADateAndBounded(String header, long seconds) {
        Instant now = Instant.parse("2026-11-30T10:00:00Z");
        assertEquals(Duration.ofSeconds(seconds), Retry.readAfter(header, now));
        assertEquals(Duration.ofDays(1), Retry.milliseconds(Long.MAX_VALUE));
        assertEquals(Duration.ZERO, Retry.milliseconds(Long.MIN_VALUE));
    }

    @Test
    void pausesGrowToTheirLimit() {
        for (int failures = 1; failures < 100; failures++) {
            Duration pause = Retry.backoff(Duration.ofMillis(250), Duration.ofSeconds(10), failures);
            assertTrue(!pause.isNegative() && pause.compareTo(Duration.ofSeconds(10)) <= 0, () -> pause.toString());
        }
        Retry.Attempts attempts = new Retry.Attempts(new RetryOptions().attempts(2), false);
        ConnectionException lost = new ConnectionException("http://a", true, false, "lost", null);
        assertNull(attempts.pauseAfter(lost, true), "a call that may have been applied is not repeated");
        Retry.Attempts others = new Retry.Attempts(new RetryOptions().attempts(2), false);
        assertTrue(others.pauseAfter(lost, false) != null);
        assertNull(others.pauseAfter(lost, false), "two attempts are all");
    }

    @ParameterizedTest
    @CsvSource({"localhost:7070, http://localhost:7070", "HTTP://Host:80/, http://host", "https://h:443/a/, https://h/a", "http://[::1]:7070, http://[::1]:7070",
        "http://user:secret@h, ", "ftp://h, ", "http://h?q, ", "http://h#f, ", "http:// h, ", "http://ü, ", "'', ", "http://, "})
    void urlsHaveOneForm(String text, String wanted) {
        if (wanted == null) {
            IllegalArgumentException refused = assertThrows(IllegalArgumentException.class, () -> new Servers(text));
            assertFalse(refused.getMessage().contains("secret"));
            boolean mayBeShown = !text.isEmpty() && !text.matches(".*[@?#].*");
            assertEquals(mayBeShown, refused.getMessage().endsWith("\"" + text + "\""), refused.getMessage());
        } else {
            assertEquals(wanted, Servers.read(text));
        }
    }

    @Test
    void aClientStaysWithAServerUntilACallFailsThere() {
        Servers servers = new Servers("http://a, http://b:80,http://b,http://c");
        assertEquals(3, servers.count());
        Servers.Server a = servers.next("q");
        assertEquals("http://a", a.base);
        servers.noteOwner("q", "http://c/");
        assertEquals("http://c", servers.next("q").base);
        assertEquals("http://a", servers.next("").base);
        servers.noteOwner("q", "http://elsewhere");
        assertEquals("http://a", servers.next("q").base, "the token goes to no other server");
        servers.leave(a, "q");
        servers.leave(a, "q");
        assertEquals("http://b", servers.next("q").base);
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "a/../b", ".", "a//b", "/a"})
    void aPathHasNoPartsThatProxiesRemove(String name) {
        assertThrows(IllegalArgumentException.class, () -> Request.segment(name));
    }

    @Test
    void callsHaveNames() {
        assertEquals("add", new Request("POST", "/v1/queues/sources/add", "sources").name());
        assertEquals("", new Request("PUT", "/v1/queues/q", "q").name());
        assertEquals("sources", new Request("POST", "/v1/queues/q/sources/add/seen", "q").name());
        assertEquals("queues", new Request("GET", "/v1/queues", "").name());
        assertEquals("the call DELETE of the queue \"q\"", new Request("DELETE", "/v1/queues/q", "q").row());
        assertEquals("/x?key=a%2Fb%20%C3%BC%2B", new Request("GET", "/x", "").with("key", "a/b ü+").target());
    }

    @Test
    void tasksHaveVirtualThreadsWhereThereAreSome() throws Exception {
        boolean isVirtual = Threads.perTask().submit(() -> Thread.currentThread().toString().startsWith("VirtualThread")).get();
        assertEquals(Runtime.version().feature() >= 21, isVirtual);
    }

    /** A lock of the language holds the carrier of a virtual thread while it waits for a reply. */
    @Test
    void noModuleHasLocksOfTheLanguage() throws Exception {
        assumeTrue(Files.exists(Path.of("../deltaq-spring/src/main/java")));
        for (String module : List.of("../deltaq", "../deltaq-test", "../deltaq-spring")) {
            try (Stream<Path> files = Files.walk(Path.of(module, "src/main/java"))) {
                for (Path file : files.filter(Files::isRegularFile).toList()) {
                    assertFalse(Files.readString(file).matches("(?s).*\\bsynchronized *[\\w(].*"), file + " has synchronized");
                }
            }
        }
    }

    @Test
    void wrongArgumentsAreNamed() {
        Queue queue = new Client("http://localhost:1", new ClientOptions().retry(new RetryOptions().attempts(1))).queue("q");
        assertThrows(IllegalArgumentException.class, () -> new Worker(null, job -> {}));
        assertThrows(IllegalArgumentException.class, () -> new Worker(queue, null));
        assertThrows(IllegalArgumentException.class, () -> new WorkerOptions().concurrency(0));
        assertThrows(IllegalArgumentException.class, () -> new WorkerOptions().grace(Duration.ofSeconds(-1)));
        assertThrows(IllegalArgumentException.class, () -> new Informer(null));
        assertThrows(IllegalArgumentException.class, () -> new Reflector(queue, ""));
        assertThrows(IllegalArgumentException.class, () -> new Client("http://localhost:1", new ClientOptions().token("a").tokenSource(() -> "b")));
        assertThrows(IllegalArgumentException.class, () -> new Client("http://localhost:1").queue("").status());
        assertThrows(EncodeException.class, () -> queue.add(null));
        assertThrows(EncodeException.class, () -> queue.add("{}"));
        assertThrows(EncodeException.class, () -> queue.addKey(""));
        for (String half : List.of("\ud83d", "a\ude00b", "\ude00\ud83d", "\ud83d\ud83d\ude00")) {
            // UTF-8 would have a question mark for it, which is another key.
            assertThrows(EncodeException.class, () -> queue.addKey(half));
            assertThrows(EncodeException.class, () -> queue.latestObject(half));
            assertThrows(EncodeException.class, () -> queue.add(Map.of("key", half)));
            assertThrows(EncodeException.class, () -> queue.add(Json.of("{\"key\":\"" + half + "\"}")));
        }
        EncodeException wrong = assertThrows(EncodeException.class, () -> queue.add(List.of(Map.of(), new Object())));
        assertTrue(wrong.getMessage().contains("object 1:"), wrong.getMessage());
    }
}
