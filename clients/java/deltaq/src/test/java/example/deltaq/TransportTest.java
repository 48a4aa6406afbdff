package example.deltaq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.lang.ref.Reference;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.http.HttpClient;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests with a server that answers as the test says. */
@Timeout(30)
class TransportTest {
    private static final String STATUS = "{\"ready\":1,\"followers\":[]}";

    interface Answer {
        void to(HttpExchange exchange) throws Exception;
    }

    private final List<String> requests = Collections.synchronizedList(new ArrayList<>());
    private final CountDownLatch end = new CountDownLatch(1);
    private HttpServer server;
    private volatile Answer answer;
    private String url;

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool(Threads::daemon));
        server.createContext("/", exchange -> {
            requests.add(exchange.getRequestMethod() + " " + exchange.getRequestURI());
            try {
                answer.to(exchange);
            } catch (Exception e) {
                throw new IOException(e);
            } finally {
                exchange.close();
            }
        });
        server.start();
        url = "http://127.0.0.1:" + server.getAddress().getPort();
    }

    @AfterEach
    void stop() {
        end.countDown();
        server.stop(0);
    }

    private static void reply(HttpExchange exchange, int status, String type, String body) throws IOException {
        exchange.getRequestBody().readAllBytes();
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("content-type", type);
        exchange.sendResponseHeaders(status, bytes.length == 0 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
    }

    private Client client(ClientOptions options) {
        return new Client(url, options);
    }

    private static ClientOptions once() {
        return new ClientOptions().retry(new RetryOptions().attempts(1)).logger(System.getLogger("test"));
    }

    @Test
    void aDeadlineHoldsForTheBodyToo() {
        answer = exchange -> {
            exchange.sendResponseHeaders(200, 100);
            exchange.getResponseBody().write('{');
            exchange.getResponseBody().flush();
            end.await();
        };
        try (Client client = client(once().replyTimeout(Duration.ofMillis(300)))) {
            ConnectionException failure = assertThrows(ConnectionException.class, () -> client.queue("q").status());
            assertTrue(failure.isSent());
            assertTrue(failure.isRetryable());
            assertTrue(failure.getMessage().contains("no reply within"), failure.getMessage());
        }
    }

    @Test
    void aRefusedConnectionIsNotSent() throws Exception {
        server.stop(0);
        try (Client client = client(once())) {
            assertFalse(assertThrows(ConnectionException.class, () -> client.queue("q").status()).isSent());
        }
    }

    /** Answers the first bytes of each connection with a text, and closes it. */
    private static ServerSocket server(String text) throws IOException {
        return server(text, new AtomicInteger());
    }

    private static ServerSocket server(String text, AtomicInteger count) throws IOException {
        ServerSocket socket = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Threads.daemon(() -> {
            while (true) {
                try (Socket connection = socket.accept()) {
                    connection.getInputStream().read(new byte[8192]);
                    count.incrementAndGet();
                    connection.getOutputStream().write(text.getBytes(StandardCharsets.UTF_8));
                } catch (IOException e) {
                    return;
                }
            }
        }).start();
        return socket;
    }

    @Test
    void aServerWithoutTlsIsSaidAtOnce() throws IOException {
        try (ServerSocket plain = server("HTTP/1.1 400 Bad Request\r\n\r\n"); Client client = new Client("https://127.0.0.1:" + plain.getLocalPort())) {
            ConnectionException failure = assertThrows(ConnectionException.class, () -> client.queue("q").status());
            assertTrue(failure.getMessage().contains("its URL begins with http"), failure.getMessage());
            assertFalse(failure.isSent());
        }
    }

    @Test
    void aPeerThatIsGoneIsNoticedAndALongPollIsNotCut() {
        CountDownLatch asked = new CountDownLatch(2);
        answer = exchange -> {
            if (exchange.getRequestURI().getPath().equals("/livez")) {
                reply(exchange, 200, "text/plain", "ok");
                asked.countDown();
                return;
            }
            asked.await();
            reply(exchange, 200, "application/json", "{\"items\":[]}");
        };
        ClientOptions options = once();
        options.silence = Duration.ofMillis(200);
        options.answer = Duration.ofSeconds(20);
        PopOptions wait = new PopOptions().wait(Duration.ofSeconds(20));
        try (Client client = client(options)) {
            assertEquals(List.of(), client.queue("q").pop(wait).items());
        }
        options.answer = Duration.ofMillis(200);
        answer = exchange -> end.await();
        try (Client client = client(options)) {
            ConnectionException failure = assertThrows(ConnectionException.class, () -> client.queue("q").pop(wait));
            assertTrue(failure.isSent() && failure.getMessage().contains("alive"), failure.getMessage());
        }
    }

    @Test
    void anInterruptEndsACall() throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        answer = exchange -> {
            arrived.countDown();
            end.await();
        };
        try (Client client = client(new ClientOptions())) {
            Thread main = Thread.currentThread();
            Thread other = new Thread(() -> {
                try {
                    arrived.await();
                } catch (InterruptedException e) {
                    return;
                }
                main.interrupt();
            });
            other.start();
            assertThrows(CancelledException.class, () -> client.queue("q").pop(new PopOptions().wait(Duration.ofSeconds(20))));
            assertTrue(Thread.interrupted());
        }
    }

    @Test
    void theEndOfAClientEndsItsCalls() throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        answer = exchange -> {
            arrived.countDown();
            end.await();
        };
        Client client = client(new ClientOptions());
        new Thread(() -> {
            try {
                arrived.await();
            } catch (InterruptedException e) {
                return;
            }
            client.close();
        }).start();
        assertThrows(CancelledException.class, () -> client.queue("q").status());
        assertThrows(CancelledException.class, () -> client.queue("q").status());
        assertEquals(1, requests.size());
    }

    @Test
    void aRetryableProblemIsRepeatedAfterTheTimeThatTheServerAsksFor() {
        AtomicInteger count = new AtomicInteger();
        answer = exchange -> {
            if (count.getAndIncrement() > 0) {
                reply(exchange, 200, "application/json", STATUS);
                return;
            }
            exchange.getResponseHeaders().set("retry-after", "1");
            reply(exchange, 503, "text/html", "<html>away</html>");
        };
        try (Client client = client(new ClientOptions().retry(new RetryOptions().first(Duration.ofMillis(1))))) {
            long began = System.nanoTime();
            assertEquals(1, client.queue("q").status().ready());
            assertTrue(System.nanoTime() - began >= 1_000_000_000L);
            assertEquals(2, count.get());
        }
    }

    @Test
    void whatIsNotFromDeltaqIsSaid() {
        answer = exchange -> reply(exchange, 200, "text/html", "<html>sign in</html>");
        try (Client client = client(once())) {
            ReplyException page = assertThrows(ReplyException.class, () -> client.queue("q").status());
            assertFalse(page.isJson());
            answer = exchange -> reply(exchange, 200, "application/json", "{\"ready\":1}");
            assertTrue(assertThrows(ReplyException.class, () -> client.queue("q").status()).isJson());
            answer = exchange -> {
                exchange.getResponseHeaders().set("location", url + "/elsewhere");
                reply(exchange, 302, "text/html", "");
            };
            assertEquals(302, assertThrows(ReplyException.class, () -> client.queue("q").status()).status());
            assertEquals(3, requests.size(), "redirects are not followed: the token is for one server");
        }
    }

    @Test
    void aProblemHasItsMembers() {
        answer = exchange -> reply(exchange, 429, "application/problem+json", "{\"type\":\"t\",\"title\":\"x\",\"status\":429,\"detail\":\"full\",\"hint\":\"wait\","
                + "\"code\":\"queue-full\",\"retryable\":true,\"request_id\":\"r\",\"retry_after_ms\":99999999999999,\"limit\":10.5,\"new\":{}}");
        try (Client client = client(once())) {
            ProblemException problem = assertThrows(ProblemException.class, () -> client.queue("q").add(Map.of("key", "a")));
            assertEquals("429 queue-full: full; wait", problem.getMessage());
            assertTrue(problem.is(Codes.QUEUE_FULL) && problem.isRetryable());
            assertEquals(Duration.ofDays(1), problem.retryAfter());
            assertEquals(10.5, problem.problem().limit());
        }
    }

    @Test
    void aTokenIsNotShown() {
        IllegalArgumentException refused = assertThrows(IllegalArgumentException.class, () -> client(once().token("secret\nline")));
        assertFalse(refused.getMessage().contains("secret"), refused.getMessage());
        String[] page = {"<html>\nsecret"};
        answer = exchange -> reply(exchange, 200, "application/json", STATUS);
        try (Client client = client(once().tokenSource(() -> page[0]))) {
            // A source may work again, so a worker asks it again.
            TokenException failure = assertThrows(TokenException.class, () -> client.queue("q").status());
            assertTrue(failure.getMessage().startsWith("the token: what the source has returned has a control character"), failure.getMessage());
            page[0] = "token";
            assertEquals(1, client.queue("q").status().ready());
        }
    }

    @Test
    void aTokenSourceIsAskedAgainAfterARefusal() {
        AtomicInteger asked = new AtomicInteger();
        List<String> tokens = new ArrayList<>();
        answer = exchange -> {
            String token = exchange.getRequestHeaders().getFirst("authorization");
            tokens.add(token);
            boolean isNew = token.equals("Bearer token-2");
            reply(exchange, isNew ? 200 : 401, isNew ? "application/json" : "application/problem+json",
                    isNew ? STATUS : "{\"code\":\"unauthorized\",\"detail\":\"d\",\"retryable\":false}");
        };
        try (Client client = client(once().tokenSource(() -> "token-" + asked.incrementAndGet()))) {
            assertEquals(1, client.queue("q").status().ready());
            assertEquals(List.of("Bearer token-1", "Bearer token-2"), tokens);
        }
        try (Client client = client(once().tokenSource(() -> {
            throw new IOException("no provider");
        }))) {
            assertThrows(TokenException.class, () -> client.queue("q").status());
        }
    }

    @Test
    void aTokenFileIsReadAgainAfterARefusal(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("token");
        Files.writeString(file, "token-1\n");
        answer = exchange -> {
            boolean isNew = "Bearer token-2".equals(exchange.getRequestHeaders().getFirst("authorization"));
            reply(exchange, isNew ? 200 : 401, isNew ? "application/json" : "application/problem+json",
                    isNew ? STATUS : "{\"code\":\"unauthorized\",\"detail\":\"d\",\"retryable\":false}");
        };
        try (Client client = client(once().tokenFile(file))) {
            assertThrows(ProblemException.class, () -> client.queue("q").status());
            Files.writeString(file, "half a\ntoken");
            assertThrows(ProblemException.class, () -> client.queue("q").status());
            Files.delete(file);
            assertThrows(ProblemException.class, () -> client.queue("q").status());
            Files.writeString(file, " token-2\n");
            assertEquals(1, client.queue("q").status().ready());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 200 OK\r\ncontent-ty", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"ready\":1",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n{\"ready\":1", "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n{}"})
    void anAnswerThatEndsInTheMiddleIsNoReply(String text) throws IOException {
        try (ServerSocket broken = server(text); Client client = new Client("http://127.0.0.1:" + broken.getLocalPort(), once())) {
            ConnectionException failure = assertThrows(ConnectionException.class, () -> client.queue("q").status());
            assertTrue(failure.isSent() && failure.isRetryable(), failure.getMessage());
        }
    }

    @Test
    void aRefusalThatDoesNotEndIsReadForAWhile() {
        answer = exchange -> {
            exchange.sendResponseHeaders(500, 0);
            byte[] part = new byte[1 << 16];
            while (true) {
                exchange.getResponseBody().write(part);
            }
        };
        try (Client client = client(once())) {
            assertEquals(500, assertThrows(ReplyException.class, () -> client.queue("q").status()).status());
        }
    }

    @Test
    void aLongPauseThatAServerAsksForEndsWithItsWorker() throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        answer = exchange -> {
            exchange.getResponseHeaders().set("retry-after", "99999999999999999999");
            reply(exchange, 503, "text/html", "");
            asked.countDown();
        };
        try (Client client = new Client(url)) {
            long began = System.nanoTime();
            assertThrows(ReplyException.class, () -> client.queue("q").status());
            Worker worker = new Worker(client.queue("q"), job -> {});
            CompletableFuture<Void> end = worker.start();
            asked.await();
            worker.close();
            end.get();
            assertTrue(System.nanoTime() - began < 15_000_000_000L, "the worker does not wait for a day");
        }
    }

    @Test
    void errorsThatNoCallerGetsAreLogged() {
        List<String> lines = Collections.synchronizedList(new ArrayList<>());
        System.Logger logger = new System.Logger() {
            @Override
            public String getName() {
                return "test";
            }

            @Override
            public boolean isLoggable(Level level) {
                return true;
            }

            @Override
            public void log(Level level, java.util.ResourceBundle bundle, String text, Throwable thrown) {
                lines.add(level + " " + text);
            }

            @Override
            public void log(Level level, java.util.ResourceBundle bundle, String text, Object... parameters) {
                lines.add(level + " " + text);
            }
        };
        answer = exchange -> {
            if (exchange.getRequestURI().getPath().equals("/v1/queues/rows/watch")) {
                reply(exchange, 200, "application/x-ndjson", """
                        {"type":"Added","key":"a","resource_version":1,"object":{}}
                        {"type":"Bookmark","resource_version":1,"initial_events_end":true}
                        """);
                return;
            }
            reply(exchange, 401, "application/problem+json", "{\"code\":\"unauthorized\",\"detail\":\"who?\",\"retryable\":false}");
        };
        try (Client client = client(new ClientOptions().logger(logger))) {
            assertThrows(ExecutionException.class, () -> new Worker(client.queue("q"), job -> {}, new WorkerOptions().name("w")).start().get());
            assertThrows(ExecutionException.class, () -> new Informer(client.queue("q")).start().get());
            String error = " has ended with an error: example.deltaq.ProblemException: 401 unauthorized: who?";
            assertEquals(List.of("ERROR deltaq: the worker w of the queue q" + error, "ERROR deltaq: an informer of the queue q" + error), lines);
            lines.clear();
            try (Informer informer = new Informer(client.queue("rows"))) {
                informer.addHandler(new InformerHandler() {
                    @Override
                    public void onAdd(QueueObject object, boolean isInInitialList) {
                        throw new OutOfMemoryError("no space");
                    }
                });
                informer.start();
                assertTrue(Informer.waitForCacheSync(Duration.ofSeconds(20), informer));
            }
            assertEquals("ERROR deltaq: a handler of an informer has failed: java.lang.OutOfMemoryError: no space (queue rows, key a)", lines.get(0));
        }
    }

    @Test
    void callsHaveHttp11UnlessAnotherVersionIsAskedFor() {
        List<String> upgrades = Collections.synchronizedList(new ArrayList<>());
        answer = exchange -> {
            upgrades.add(String.valueOf(exchange.getRequestHeaders().getFirst("upgrade")));
            reply(exchange, 200, "application/json", STATUS);
        };
        for (ClientOptions options : List.of(once(), once().httpVersion(HttpClient.Version.HTTP_2))) {
            try (Client client = client(options)) {
                client.queue("q").status();
            }
        }
        assertEquals(List.of("null", "h2c"), upgrades);
    }

    /** The numbers of the threads of HttpClients, of which each has one. */
    private static Set<Long> selectors() {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().matches("HttpClient-.*SelectorManager"))
                .map(Thread::getId).collect(Collectors.toSet());
    }

    @Test
    void aClientHasOneHttpClientThatEndsWithIt() throws Exception {
        answer = exchange -> reply(exchange, 200, "application/json", STATUS);
        Set<Long> before = selectors();
        Client client = client(once());
        Client hasty = client.withRetry(new RetryOptions().attempts(1));
        client.queue("q").status();
        hasty.queue("q").status();
        Set<Long> own = selectors();
        own.removeAll(before);
        assertEquals(1, own.size());
        hasty.close();
        // Before Java 21, it ends when the collector of garbage finds that nothing refers to it.
        while (selectors().containsAll(own)) {
            System.gc();
            Thread.sleep(50);
        }
        Reference.reachabilityFence(client);
    }

    /** Calls that may have been applied are repeated only if a repeat has the same effect. */
    @Test
    void onlyIdempotentCallsAreRepeatedWithoutAReply() throws IOException {
        AtomicInteger count = new AtomicInteger();
        Map<String, Consumer<Queue>> repeated = new TreeMap<>();
        Map<String, Consumer<Queue>> once = new TreeMap<>();
        Map<String, String> object = Map.of("key", "a");
        PatchOptions match = new PatchOptions().ifMatch("\"1\"");
        repeated.put("putSettings", queue -> queue.putSettings(QueueSettings.builder().build()));
        repeated.put("patchSettings", queue -> queue.patchSettings(QueueSettings.builder().build()));
        repeated.put("status", Queue::status);
        repeated.put("pause", Queue::pause);
        repeated.put("close", Queue::close);
        repeated.put("add", queue -> queue.add(object));
        repeated.put("delete", queue -> queue.deleteKey("a"));
        repeated.put("rated with a number", queue -> queue.addKey("a", new ProduceOptions().rateLimited(true).source("s").sequence(1)));
        repeated.put("deltas", queue -> queue.deltas(List.of(DeltaCall.deleted("a"))));
        repeated.put("replace", queue -> queue.replace(List.of(object)));
        repeated.put("forget", queue -> queue.forget("a"));
        repeated.put("pop", Queue::pop);
        repeated.put("ack", queue -> queue.ack("l"));
        repeated.put("latest", queue -> queue.latest().toList());
        once.put("deleteQueue", Queue::deleteQueue);
        once.put("purge", Queue::purge);
        once.put("promote", queue -> queue.promote(Selection.keys("a")));
        once.put("redrive", queue -> queue.redrive(Selection.keys("a")));
        once.put("discard", queue -> queue.discard(Selection.keys("a")));
        once.put("resync", Queue::resync);
        once.put("seed", queue -> queue.seed(List.of()));
        once.put("rated", queue -> queue.addKey("a", new ProduceOptions().rateLimited(true)));
        once.put("if absent", queue -> queue.add(object, new ProduceOptions().ifAbsent(true)));
        once.put("expected version", queue -> queue.deltas(List.of(DeltaCall.deleted("a").withExpectedVersion(1))));
        once.put("settings with a tag", queue -> queue.patchSettings(QueueSettings.builder().build(), match));
        // Without any byte of a reply, the HttpClient would repeat a GET itself.
        try (ServerSocket silent = server("HTTP/1.1 200 ", count)) {
            ClientOptions twice = new ClientOptions().retry(new RetryOptions().attempts(2).first(Duration.ofMillis(1))).logger(System.getLogger("test"));
            try (Client client = new Client("http://127.0.0.1:" + silent.getLocalPort(), twice)) {
                repeated.forEach((name, call) -> assertEquals(2, attempts(count, client.queue("q"), call), name));
                once.forEach((name, call) -> assertEquals(1, attempts(count, client.queue("q"), call), name));
            }
        }
    }

    private static int attempts(AtomicInteger count, Queue queue, Consumer<Queue> call) {
        count.set(0);
        assertThrows(ConnectionException.class, () -> call.accept(queue));
        return count.get();
    }

    @Test
    void middlewareIsAroundEachCall() {
        List<String> seen = new ArrayList<>();
        answer = exchange -> {
            seen.add("sent " + exchange.getRequestHeaders().getFirst("x-more"));
            reply(exchange, 200, "application/json", STATUS);
        };
        ClientOptions options = once().middleware(next -> call -> {
            seen.add("outer " + call.method() + " " + call.queue() + " " + call.name());
            next.invoke(call);
            seen.add("end");
        }).middleware(next -> call -> {
            call.headers().put("x-more", "yes");
            next.invoke(call);
        });
        try (Client client = client(options)) {
            client.queue("q").status();
            assertEquals(List.of("outer GET q status", "sent yes", "end"), seen);
        }
        try (Client client = client(once().middleware(next -> call -> {}))) {
            assertThrows(IllegalStateException.class, () -> client.queue("q").status());
        }
    }

    @Test
    void aLongListIsSentInPartsAndReadAgainForARepeat() {
        AtomicInteger iterators = new AtomicInteger();
        List<Long> sizes = Collections.synchronizedList(new ArrayList<>());
        Iterable<Map<String, String>> list = () -> {
            iterators.incrementAndGet();
            return java.util.stream.IntStream.range(0, 60_000).mapToObj(index -> Map.of("key", "k" + index, "text", "x".repeat(100))).iterator();
        };
        answer = exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            sizes.add((long) body.length);
            boolean isComplete = new String(body, body.length - 20, 20, StandardCharsets.UTF_8).endsWith("{\"$end\":60000}\n");
            boolean isFirst = sizes.size() == 1;
            reply(exchange, isFirst ? 503 : isComplete ? 200 : 500, "application/json", "{\"invalid_objects\":[],\"replaced\":60000}");
        };
        try (Client client = client(new ClientOptions().retry(new RetryOptions().first(Duration.ofMillis(1))))) {
            assertEquals(60_000, client.queue("q").replace(list).replaced());
            assertEquals(sizes.get(0), sizes.get(1));
            assertTrue(sizes.get(0) > 7_000_000);
            assertEquals(2, iterators.get(), "once for each attempt");
            Iterable<Map<String, String>> broken = () -> new java.util.Iterator<>() {
                private int count;

                @Override
                public boolean hasNext() {
                    return true;
                }

                @Override
                public Map<String, String> next() {
                    if (++count > 100_000) {
                        throw new IllegalStateException("the source is broken");
                    }
                    return Map.of("key", "k" + count, "text", "x".repeat(100));
                }
            };
            assertEquals("the source is broken", assertThrows(IllegalStateException.class, () -> client.queue("q").replace(broken)).getMessage());
        }
    }

    @Test
    void aLongListThatCanBeReadOnceIsSent() {
        answer = exchange -> {
            String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            reply(exchange, body.endsWith("{\"$end\":60000}\n") ? 200 : 500, "application/json", "{\"invalid_objects\":[],\"replaced\":60000}");
        };
        try (Client client = client(once())) {
            Iterable<Object> list = java.util.stream.IntStream.range(0, 60_000)
                    .mapToObj(index -> (Object) Map.of("key", "k" + index, "text", "x".repeat(100)))::iterator;
            assertEquals(60_000, client.queue("q").replace(list).replaced());
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    @Timeout(value = 30, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
    void aLongListWhoseIteratorBlocksEndsWithItsCall(boolean isClosed) throws Exception {
        CountDownLatch blocked = new CountDownLatch(1);
        Iterable<Object> list = () -> java.util.stream.IntStream.range(0, 100_000).mapToObj(index -> {
            if (index == 60_000) {
                blocked.countDown();
                try {
                    end.await();
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            }
            return (Object) Map.of("key", "k" + index, "text", "x".repeat(100));
        }).iterator();
        answer = exchange -> exchange.getRequestBody().readAllBytes();
        try (Client client = client(once())) {
            Thread main = Thread.currentThread();
            Threads.daemon(() -> {
                try {
                    blocked.await();
                } catch (InterruptedException e) {
                    return;
                }
                if (isClosed) {
                    client.close();
                } else {
                    main.interrupt();
                }
            }).start();
            assertThrows(CancelledException.class, () -> client.queue("q").replace(list));
            assertEquals(!isClosed, Thread.interrupted());
        }
    }

    @Test
    void aDecoderOfTheApplicationIsUsed() {
        answer = exchange -> reply(exchange, 200, "application/json", "{\"items\":[{\"key\":\"a\",\"object\":{\"n\":1}}]}");
        try (Client client = client(once().decoder((text, type) -> type.getSimpleName() + " " + text))) {
            QueueObject object = client.queue("q").latest().iterator().next();
            assertEquals("String {\"n\":1}", object.object(String.class));
            assertEquals(Json.of("{\"n\":1}"), object.object());
        }
    }

    @Test
    void aCallWithoutABodySaysNothingOfItsLength() {
        assumeTrue(Runtime.version().feature() >= 21, "Java 17 sends the header in any case");
        List<String> lengths = new ArrayList<>();
        answer = exchange -> {
            lengths.add(exchange.getRequestHeaders().getFirst("content-length"));
            reply(exchange, 200, "application/json", STATUS);
        };
        try (Client client = client(once())) {
            client.queue("q").status();
        }
        assertEquals(Collections.singletonList(null), lengths);
    }

    @Test
    void aHostThatIsNotThereIsNoProblem() {
        answer = exchange -> reply(exchange, 200, "application/json", STATUS);
        try (Client several = new Client("http://127.0.0.1:1," + url, once())) {
            assertEquals(1, several.queue("q").status().ready());
        }
    }
}
