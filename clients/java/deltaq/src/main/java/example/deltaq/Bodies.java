package example.deltaq;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscriber;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow.Subscription;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** The bodies of replies: whole ones as bytes, and streams as lines. */
final class Bodies {
    /** How much is read of a reply that is not from deltaq. A connection can be used again if its reply was read to the end. */
    private static final int DRAINED_MAX = 64 << 10;
    /** The largest problem document: the results of 10,000 leases. */
    private static final int PROBLEM_MAX = 16 << 20;
    /** The longest line of a stream. It has one object, and servers accept calls of 64 MiB if their settings say nothing else. */
    private static final int LINE_MAX = 256 << 20;

    private Bodies() {}

    /** A body is a {@code byte[]}, or {@link Lines} for a stream that the server has accepted. */
    static BodyHandler<Object> handler(Servers.Server server, boolean isStream) {
        return head -> {
            server.hear();
            if (head.statusCode() < 300) {
                return isStream ? new Lines(server, LINE_MAX) : new Whole(server, Integer.MAX_VALUE);
            }
            boolean isProblem = head.headers().firstValue("content-type").orElse("").startsWith("application/problem+json");
            return new Whole(server, isProblem ? PROBLEM_MAX : DRAINED_MAX);
        };
    }

    /** Collects a body up to a number of bytes. */
    private static final class Whole implements BodySubscriber<Object> {
        private final Servers.Server server;
        private final int limit;
        private final CompletableFuture<Object> body = new CompletableFuture<>();
        private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        private Subscription subscription;

        Whole(Servers.Server server, int limit) {
            this.server = server;
            this.limit = limit;
        }

        @Override
        public CompletionStage<Object> getBody() {
            return body;
        }

        @Override
        public void onSubscribe(Subscription given) {
            subscription = given;
            given.request(Long.MAX_VALUE);
        }

        @Override
        public void onNext(List<ByteBuffer> parts) {
            server.hear();
            for (ByteBuffer part : parts) {
                byte[] copied = new byte[Math.min(part.remaining(), limit - bytes.size())];
                part.get(copied);
                bytes.writeBytes(copied);
            }
            if (bytes.size() >= limit) {
                subscription.cancel();
                body.complete(bytes.toByteArray());
            }
        }

        @Override
        public void onError(Throwable failure) {
            body.completeExceptionally(failure);
        }

        @Override
        public void onComplete() {
            body.complete(bytes.toByteArray());
        }
    }

    /** The lines of a stream, which arrive as fast as they are read. */
    static final class Lines implements BodySubscriber<Object>, AutoCloseable {
        /** The end of the stream. The failure is null for a clean one. */
        private record End(Throwable failure) {}

        private final Servers.Server server;
        private final int lineMax;
        private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
        private final ByteArrayOutputStream line = new ByteArrayOutputStream();
        private volatile Subscription subscription;
        private volatile boolean isClosed;
        private byte[] part = {};
        private int at;
        private volatile long arrivedAt;

        Lines(Servers.Server server, int lineMax) {
            this.server = server;
            this.lineMax = lineMax;
        }

        @Override
        public CompletionStage<Object> getBody() {
            return CompletableFuture.completedFuture(this);
        }

        @Override
        public void onSubscribe(Subscription given) {
            subscription = given;
            if (isClosed) {
                given.cancel();
            } else {
                given.request(1);
            }
        }

        @Override
        public void onNext(List<ByteBuffer> parts) {
            server.hear();
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            for (ByteBuffer each : parts) {
                byte[] copied = new byte[each.remaining()];
                each.get(copied);
                bytes.writeBytes(copied);
            }
            arrivedAt = Clock.now();
            arrived.add(bytes.toByteArray());
        }

        /** When something has arrived last. */
        long arrivedAt() {
            return arrivedAt;
        }

        @Override
        public void onError(Throwable failure) {
            arrived.add(new End(failure));
        }

        @Override
        public void onComplete() {
            arrived.add(new End(null));
        }

        /** Ends the wait of the reader. */
        void cancel() {
            arrived.add(new End(new IOException("the stream was cancelled")));
        }

        /**
         * The next line, or null at the end of the stream.
         *
         * @throws TimeoutException if nothing arrives for a time
         * @throws IOException if the connection is lost, or a line does not end
         */
        String next(Duration patience) throws IOException, TimeoutException, InterruptedException {
            while (true) {
                for (int end = at; end < part.length; end++) {
                    if (part[end] == '\n') {
                        line.write(part, at, end - at);
                        at = end + 1;
                        String read = line.toString(StandardCharsets.UTF_8);
                        line.reset();
                        return read;
                    }
                }
                if (line.size() + part.length - at > lineMax) {
                    throw new IOException("a line of the stream is longer than " + lineMax + " bytes");
                }
                line.write(part, at, part.length - at);
                part = new byte[0];
                at = 0;
                Object next = arrived.poll(Clock.nanos(patience), TimeUnit.NANOSECONDS);
                if (next == null) {
                    throw new TimeoutException();
                }
                if (next instanceof End end) {
                    arrived.add(end);
                    if (end.failure != null) {
                        throw end.failure instanceof IOException failure ? failure : new IOException(end.failure);
                    }
                    if (line.size() > 0) {
                        throw new IOException("the stream ended in the middle of a line");
                    }
                    return null;
                }
                part = (byte[]) next;
                subscription.request(1);
            }
        }

        @Override
        public void close() {
            isClosed = true;
            // The reader may end before the body begins.
            if (subscription != null) {
                subscription.cancel();
            }
        }
    }
}
