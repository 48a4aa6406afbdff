package example.deltaq;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/** One stream of the changes of a view. */
final class Watch {
    private final Queue queue;
    private final WatchOptions options;

    Watch(Queue queue, WatchOptions options) {
        this.queue = queue;
        this.options = options;
    }

    private Request call() {
        Request call = queue.call("GET", "/watch").with("view", options.view).with("resource_version", options.now ? "now" : options.resourceVersion)
                .withText("prefix", options.prefix).withText("shard", options.shard).with("bookmark", options.bookmark);
        call.accept = "application/x-ndjson";
        call.isStream = true;
        return call;
    }

    /** Calls a function with each row until the stream ends. */
    void run(Scope scope, Consumer<WatchRow> function) {
        Transport transport = queue.transport;
        Transport.Opened opened = transport.openAnywhere(scope, call());
        Duration patience = options.bookmark.multipliedBy(5).dividedBy(2);
        Bodies.Lines lines = (Bodies.Lines) opened.response().body();
        Scope.Link link = scope.onEnd(lines::cancel);
        try {
            if (options.opened != null) {
                options.opened.run();
            }
            while (true) {
                String line;
                try {
                    line = next(lines, opened.server(), patience);
                } catch (InterruptedException e) {
                    throw Scope.interrupted(null);
                } catch (IOException | TimeoutException e) {
                    throw transport.lost(scope, opened.server(), queue.name(), e);
                }
                if (scope.isCancelled()) {
                    throw Scope.cancelled(null);
                }
                if (Thread.currentThread().isInterrupted()) {
                    throw Scope.interrupted(null);
                }
                if (line == null) {
                    return;
                }
                if (!line.isBlank()) {
                    function.accept(row(opened.server(), line));
                }
            }
        } finally {
            link.close();
            lines.close();
        }
    }

    /** The next line. A server that is silent is asked whether it is alive before the patience ends. */
    private String next(Bodies.Lines lines, Servers.Server server, Duration patience) throws IOException, TimeoutException, InterruptedException {
        Transport transport = queue.transport;
        // The caller may have taken its time: only the server must not be silent.
        long began = Clock.now();
        while (true) {
            long end = Clock.after(Math.max(began, lines.arrivedAt()), patience);
            Duration longest = Retry.atMost(transport.silence, Clock.until(end));
            try {
                return lines.next(longest);
            } catch (TimeoutException e) {
                if (Clock.now() >= end) {
                    throw new TimeoutException("the stream is silent for " + Durations.format(patience));
                }
                boolean isSilent = Clock.now() >= Clock.after(server.heard(), transport.silence);
                if (isSilent && !transport.isAlive(server)) {
                    throw new TimeoutException("the server does not say that it is alive");
                }
            }
        }
    }

    private WatchRow row(Servers.Server server, String line) {
        WatchRow row = new Transport.Reply(server, 200, null, line, queue.transport.decoder).read(value -> Documents.read(value, WatchRow.class));
        boolean isEnd = WatchType.ERROR.equals(row.type()) || WatchType.EXPIRED.equals(row.type());
        if (!isEnd) {
            return row;
        }
        if (row.problem() == null || row.problem().code() == null) {
            throw new ReplyException(server.base, 200, true, Duration.ZERO, "a row that ends a watch has no problem");
        }
        long status = row.problem().status() == null ? 0 : row.problem().status();
        throw new ProblemException((int) status, row.problem(), Duration.ZERO);
    }
}
