package example.deltaq;

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.function.UnaryOperator;

/** Sends calls, each with its repeats, to the servers of a client. */
final class Transport {
    /** Shared by the clients of {@link Client#withRetry}; null after the end. */
    private final AtomicReference<HttpClient> http;
    final Servers servers;
    private final Tokens tokens;
    final RetryOptions retry;
    final Duration replyTimeout;
    private final String userAgent;
    final System.Logger log;
    final Rows rows;
    final Json.Encoder encoder;
    final Json.TypeDecoder decoder;
    /** The middleware of all calls; null without any. */
    private final Invoke invoke;
    /** The end of the client. */
    final Scope scope;
    /** How much longer than another call a list may take, because it may wait for other lists of its queue. */
    final Duration listWait = Duration.ofMinutes(4);
    /** How long a server may say nothing before it is asked whether it is alive, so that a peer that is gone is noticed within 30 s. */
    final Duration silence;
    /** How long the answer may take. */
    final Duration answer;

    Transport(String url, ClientOptions options) {
        servers = new Servers(Check.given("url", url, "the URL of a server, such as http://localhost:7070"));
        tokens = new Tokens(options);
        retry = options.retry.copy();
        replyTimeout = options.replyTimeout;
        userAgent = options.userAgent;
        log = options.logger != null ? options.logger : System.getLogger("deltaq");
        rows = new Rows(log, Clock::now);
        encoder = options.encoder;
        decoder = options.decoder;
        scope = new Scope();
        boolean areSeveral = servers.areSeveral();
        silence = options.silence != null ? options.silence : Duration.ofSeconds(areSeveral ? 3 : 15);
        answer = options.answer != null ? options.answer : Duration.ofSeconds(areSeveral ? 2 : 10);
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(options.httpVersion)
                .followRedirects(HttpClient.Redirect.NEVER)
                .connectTimeout(Duration.ofSeconds(areSeveral ? 2 : 5));
        if (options.sslContext != null) {
            builder.sslContext(options.sslContext);
        }
        options.http.accept(builder);
        http = new AtomicReference<>(builder.build());
        invoke = options.middleware.isEmpty() ? null : wrap(call -> call.send.run(), options.middleware);
    }

    private Transport(Transport of, RetryOptions retry) {
        this.http = of.http;
        this.servers = of.servers;
        this.tokens = of.tokens;
        this.retry = retry.copy();
        this.replyTimeout = of.replyTimeout;
        this.userAgent = of.userAgent;
        this.log = of.log;
        this.rows = of.rows;
        this.encoder = of.encoder;
        this.decoder = of.decoder;
        this.invoke = of.invoke;
        this.scope = of.scope;
        this.silence = of.silence;
        this.answer = of.answer;
    }

    Transport with(RetryOptions options) {
        return new Transport(this, options);
    }

    /** A function inside all middleware, of which the first is the outermost. */
    static <F> F wrap(F inner, List<UnaryOperator<F>> middleware) {
        F wrapped = inner;
        for (int index = middleware.size() - 1; index >= 0; index--) {
            wrapped = Check.given("what a middleware returns", middleware.get(index).apply(wrapped));
        }
        return wrapped;
    }

    /** Ends all calls. On Java 21 and later the connections are closed; before, the HttpClient closes them some time after nothing refers to it. */
    void close() {
        scope.cancel();
        HttpClient ended = http.getAndSet(null);
        if (ended == null) {
            return;
        }
        try {
            HttpClient.class.getMethod("shutdownNow").invoke(ended);
        } catch (ReflectiveOperationException e) {
            // Java 17 to 20 have no such method.
        }
    }

    /** A successful reply. */
    record Reply(Servers.Server server, int status, java.net.http.HttpHeaders headers, String body, Json.TypeDecoder decoder) {
        String etag() {
            return headers.firstValue("etag").orElse(null);
        }

        <T> T read(Function<Value, T> reader) {
            Value value;
            try {
                value = Value.parse(body, decoder);
            } catch (JsonScanner.NotJson e) {
                throw new ReplyException(server.base, status, false, Duration.ZERO, e.getMessage());
            }
            try {
                return reader.apply(value);
            } catch (JsonScanner.NotJson | IllegalArgumentException | ArithmeticException e) {
                throw new ReplyException(server.base, status, true, Duration.ZERO, e.getMessage());
            }
        }
    }

    /** Makes a call, and repeats it as the options of the client say. */
    <T> T fetch(Request call, Function<Reply, T> read) {
        return around(scope, call, () -> repeat(scope, call, read, new Retry.Attempts(retry, false)));
    }

    /** Makes a call until it succeeds, its error is final, or the scope ends: workers and reflectors don't give up. */
    <T> T fetchEndlessly(Scope within, Request call, Function<Reply, T> read, Retry.Attempts attempts) {
        return around(within, call, () -> repeat(within, call, read, attempts));
    }

    Retry.Attempts endless() {
        return new Retry.Attempts(retry, true);
    }

    /** Makes one attempt. */
    <T> T fetchOnce(Scope within, Request call, Function<Reply, T> read) {
        return around(within, call, () -> read.apply(send(within, call)));
    }

    private <T> T repeat(Scope within, Request call, Function<Reply, T> read, Retry.Attempts attempts) {
        while (true) {
            try {
                T document = read.apply(send(within, call));
                rows.answered(call);
                return document;
            } catch (DeltaqException failure) {
                pause(within, attempts, call, failure);
            }
        }
    }

    /** Logs a failure and waits before the next attempt, or throws the error of the call if there is none. */
    private void pause(Scope within, Retry.Attempts attempts, Request call, DeltaqException failure) {
        boolean isCancelled = failure instanceof CancelledException;
        if (call.list != null && !isCancelled) {
            call.list.throwFailure(within);
        }
        if (isCancelled || Failures.isOutcomeUnknown(failure)) {
            attempts.isUnknown = true;
        }
        if (isCancelled) {
            DeltaqException last = attempts.last;
            throw last == null ? failure : new CancelledException(failure.getMessage() + "; before that: " + last.getMessage(), last);
        }
        attempts.last = failure;
        Duration pause = attempts.pauseAfter(failure, call.isOnce);
        if (pause == null) {
            if (Failures.status(failure) != 0) {
                rows.answered(call);
            }
            throw failure;
        }
        rows.failed(call, attempts.limit(), failure);
        within.sleep(pause, failure);
    }

    /** Makes a call within the middleware of the client. */
    private <T> T around(Scope within, Request call, java.util.function.Supplier<T> send) {
        if (within.isCancelled()) {
            throw Scope.cancelled(null);
        }
        if (invoke == null) {
            return send.get();
        }
        Map<String, String> headers = new LinkedHashMap<>();
        call.headers.forEach((name, value) -> headers.put(name.toLowerCase(Locale.ROOT), value));
        Object[] result = {null};
        boolean[] isMade = {false};
        invoke.invoke(new Call(call.method, call.name(), call.queue, headers, () -> {
            call.headers = new LinkedHashMap<>(headers);
            result[0] = send.get();
            isMade[0] = true;
        }));
        if (!isMade[0]) {
            throw new IllegalStateException("a middleware has returned, and has not made the call");
        }
        @SuppressWarnings("unchecked")
        T read = (T) result[0];
        return read;
    }

    /** Makes one attempt, and reads the reply. */
    private Reply send(Scope within, Request call) {
        Opened opened = openAnywhere(within, call);
        if (call.list != null) {
            // The server may reply before it has read the list, for example to a number that was applied before.
            call.list.end(within);
        }
        HttpResponse<Object> response = opened.response;
        String body = new String((byte[]) response.body(), StandardCharsets.UTF_8);
        return new Reply(opened.server, response.statusCode(), response.headers(), body, decoder);
    }

    /** A server, and its successful response. */
    record Opened(Servers.Server server, HttpResponse<Object> response) {}

    /** Opens a call. If a server has done nothing, for a reason that another one need not have, the call goes to the next server. */
    Opened openAnywhere(Scope within, Request call) {
        for (int others = servers.count() - 1; ; others--) {
            try {
                return open(within, call);
            } catch (DeltaqException failure) {
                if (others == 0 || within.isCancelled() || Clock.now() >= call.deadline || !Failures.isUndoneHere(failure)) {
                    throw failure;
                }
            }
        }
    }

    /** Sends a call. A token that the server refuses is asked for again, because it may have been replaced. */
    private Opened open(Scope within, Request call) {
        String token = tokens.get();
        Servers.Server server = servers.next(call.queue);
        try {
            try {
                return attempt(within, call, server, token);
            } catch (DeltaqException failure) {
                String replacing = Failures.status(failure) == 401 ? tokens.replacing(token) : null;
                if (replacing == null) {
                    throw failure;
                }
                return attempt(within, call, server, replacing);
            }
        } catch (DeltaqException failure) {
            if (Failures.isOfServer(failure)) {
                servers.leave(server, call.queue);
            }
            throw failure;
        }
    }

    private Opened attempt(Scope within, Request call, Servers.Server server, String token) {
        if (call.list != null) {
            call.list.begin(within);
        }
        HttpRequest request = request(call, server, token);
        CompletableFuture<HttpResponse<Object>> sent = start(request, server, call.isStream);
        HttpResponse<Object> response;
        Scope.Link link = within.onEnd(() -> sent.cancel(true));
        try {
            response = await(within, call, server, sent);
        } finally {
            link.close();
            if (call.list != null) {
                call.list.leave();
            }
        }
        servers.noteOwner(call.queue, response.headers().firstValue("deltaq-owner").orElse(null));
        if (response.statusCode() < 300) {
            return new Opened(server, response);
        }
        throw refusal(server, response);
    }

    private CompletableFuture<HttpResponse<Object>> start(HttpRequest request, Servers.Server server, boolean isStream) {
        HttpClient open = http.get();
        if (open == null) {
            throw Scope.cancelled(null);
        }
        return open.sendAsync(request, Bodies.handler(server, isStream));
    }

    /** Waits for the reply, its time limit, or the silence of the server. */
    private HttpResponse<Object> await(Scope within, Request call, Servers.Server server, CompletableFuture<HttpResponse<Object>> sent) {
        long began = Clock.now();
        try {
            while (true) {
                // The time of a long list begins when it was sent.
                long counted = call.list == null ? began : call.list.endedAt();
                long end = Math.min(call.deadline, Clock.after(Clock.after(counted, replyTimeout), call.wait));
                long askAt = Clock.after(Math.max(began, server.heard()), silence);
                long now = Clock.now();
                if (now >= end) {
                    throw silent(server, "no reply within " + Durations.format(Duration.ofNanos(now - began)));
                }
                if (now >= askAt && !isAlive(server, sent, Math.min(end - now, answer.toNanos()))) {
                    throw silent(server, "the server does not say that it is alive");
                }
                try {
                    // The end of a long list is looked at again.
                    long longest = call.list == null ? Clock.FAR : Duration.ofMillis(100).toNanos();
                    return sent.get(Math.min(longest, Math.max(Math.min(end, askAt) - now, 1_000_000)), TimeUnit.NANOSECONDS);
                } catch (TimeoutException e) {
                    continue;
                }
            }
        } catch (InterruptedException e) {
            sent.cancel(true);
            throw Scope.interrupted(null);
        } catch (CancellationException e) {
            throw Scope.cancelled(null);
        } catch (ExecutionException e) {
            if (within.isCancelled()) {
                throw Scope.cancelled(null);
            }
            throw Failures.connection(server.base, e.getCause());
        } catch (ConnectionException e) {
            sent.cancel(true);
            throw e;
        }
    }

    private static ConnectionException silent(Servers.Server server, String reason) {
        return new ConnectionException(server.base, true, false, "no complete reply from " + server.base + ": " + reason, null);
    }

    /** Asks a server whether it is alive. Any answer counts. */
    boolean isAlive(Servers.Server server) throws InterruptedException {
        return isAlive(server, new CompletableFuture<>(), answer.toNanos());
    }

    /** Asks a server whether it is alive, unless the reply comes first. Any answer counts. */
    private boolean isAlive(Servers.Server server, CompletableFuture<?> sent, long patience) throws InterruptedException {
        HttpRequest question = HttpRequest.newBuilder(URI.create(server.base + "/livez")).header("user-agent", userAgent).build();
        CompletableFuture<?> answered = start(question, server, false);
        try {
            CompletableFuture.anyOf(answered, sent.handle((response, failure) -> null)).get(patience, TimeUnit.NANOSECONDS);
            server.hear();
            return true;
        } catch (ExecutionException | TimeoutException e) {
            return sent.isDone();
        } finally {
            answered.cancel(true);
        }
    }

    private HttpRequest request(Request call, Servers.Server server, String token) {
        BodyPublisher body = BodyPublishers.noBody();
        boolean hasBody = true;
        if (call.list != null) {
            body = BodyPublishers.ofInputStream(call.list::open);
        } else if (call.body != null) {
            body = BodyPublishers.ofString(call.body);
        } else {
            hasBody = false;
        }
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(server.base + call.target()));
        if (!call.method.equals("GET")) {
            // A GET is the default. With a body that is empty, also newer JDKs would send content-length.
            request.method(call.method, body);
        }
        set(request, "user-agent", userAgent);
        set(request, "accept", call.accept);
        if (hasBody) {
            set(request, "content-type", call.contentType);
        }
        if (!token.isEmpty()) {
            set(request, "authorization", "Bearer " + token);
        }
        call.headers.forEach((name, value) -> set(request, name, value));
        return request.build();
    }

    private static void set(HttpRequest.Builder request, String name, String value) {
        // The text of the builder's own exception has the value, which may be a token.
        if (value.chars().anyMatch(letter -> (letter < ' ' && letter != '\t') || letter == 0x7f || letter > 0xff)) {
            throw new IllegalArgumentException("not sent: the header " + name
                    + " would have a control character, such as a line break, or a letter beyond Latin-1");
        }
        request.setHeader(name, value);
    }

    /** Reads a reply that is not a success. */
    private static DeltaqException refusal(Servers.Server server, HttpResponse<Object> response) {
        Duration asked = Retry.readAfter(response.headers().firstValue("retry-after").orElse(null), Instant.now());
        try {
            Value value = Value.parse(new String((byte[]) response.body(), StandardCharsets.UTF_8));
            Problem problem = Documents.read(value, Problem.class);
            if (problem.code() != null && !problem.code().isEmpty()) {
                return new ProblemException(response.statusCode(), problem, asked);
            }
        } catch (JsonScanner.NotJson | IllegalArgumentException | ArithmeticException e) {
            // It is not from deltaq.
        }
        return new ReplyException(server.base, response.statusCode(), false, asked, null);
    }

    /** What has failed in a future. */
    static Throwable unwrap(Throwable failure) {
        Throwable inner = failure;
        while ((inner instanceof CompletionException || inner instanceof ExecutionException) && inner.getCause() != null) {
            inner = inner.getCause();
        }
        return inner;
    }

    /** The error of a stream whose connection is lost. */
    DeltaqException lost(Scope within, Servers.Server server, String queue, Exception cause) {
        if (within.isCancelled()) {
            return Scope.cancelled(null);
        }
        servers.leave(server, queue);
        if (cause instanceof IOException failure) {
            return Failures.connection(server.base, failure);
        }
        return silent(server, cause.getMessage());
    }
}
