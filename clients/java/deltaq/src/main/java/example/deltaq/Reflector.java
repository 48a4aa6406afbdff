package example.deltaq;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Keeps a queue in step with a source: each of its lists and changes takes effect once, in order, also if a reply is lost or the process begins anew. Run one
 * reflector for each source: two would take sequence numbers from each other. Its methods wait for each other.
 *
 * <pre>{@code
 * Reflector reflector = new Reflector(prices, "erp");
 * reflector.poll(Duration.ofMinutes(1), () -> erp.allPrices());
 * }</pre>
 */
public final class Reflector {
    /** The number of changes in a call. The limit of a server may be smaller. */
    private static final int CHANGES_MAX = 10_000;
    /** The number of invalid objects that a reply names. */
    private static final int INVALID_SHOWN = 10;

    /**
     * An entry of a source: its whole list, or changes that are applied together.
     *
     * @param list the whole list; null for changes
     * @param changes changes since the last entry; more of them than a call takes are sent in several calls
     */
    public record Entry(Iterable<?> list, List<DeltaCall> changes) {}

    private final Queue queue;
    final ReflectorOptions options;
    private final Sequence sequence;
    private final ReentrantLock turn = new ReentrantLock(true);

    /**
     * A reflector with the default options. Nothing is sent yet.
     *
     * @param queue the queue
     * @param source the name of the source
     */
    public Reflector(Queue queue, String source) {
        this(queue, source, new ReflectorOptions());
    }

    /**
     * A reflector. Nothing is sent yet.
     *
     * @param queue the queue
     * @param source the name of the source
     * @param options the options, which are copied
     */
    public Reflector(Queue queue, String source, ReflectorOptions options) {
        this.queue = Check.given("queue", queue, "a queue, such as client.queue(\"orders\")");
        if (source == null || source.isEmpty()) {
            throw new IllegalArgumentException("source is empty; it must be the name of the source, such as \"shop\"");
        }
        this.options = Check.given("options", options).copy();
        this.sequence = new Sequence(queue, source);
    }

    /**
     * Sends the whole list that a function returns, about once in each interval, which varies by a tenth, until the thread is interrupted or the client is
     * closed. An exception of the function is logged, and the last list stays in force. So does a list that is refused, see
     * {@link ReflectorOptions#onRefused}.
     *
     * @param interval the interval
     * @param list returns the whole list
     * @throws DeltaqException an error that another list would not fix, such as that of an unknown token
     */
    public void poll(Duration interval, Callable<? extends Iterable<?>> list) {
        if (interval.isNegative() || interval.isZero()) {
            throw new IllegalArgumentException("interval must be positive, such as Duration.ofMinutes(1)");
        }
        Check.given("list", list, "a function that returns the whole list");
        try {
            while (!Thread.currentThread().isInterrupted()) {
                Iterable<?> objects = null;
                try {
                    objects = Check.given("what the function returns", list.call(), "a list, which may be empty");
                } catch (InterruptedException e) {
                    throw Scope.interrupted(e);
                } catch (Exception e) {
                    unreadable(e);
                }
                if (objects != null) {
                    handle(new Entry(objects, List.of()));
                }
                queue.transport.scope.sleep(Queue.varied(interval), null);
            }
        } catch (CancelledException e) {
            // The thread is interrupted, or the client is closed.
            return;
        }
    }

    /**
     * Applies each entry of a source, until the source ends, the thread is interrupted or the client is closed. An exception of a list is logged, and the last
     * list stays in force. So does an entry that is refused, see {@link ReflectorOptions#onRefused}.
     *
     * @param source the entries
     * @throws DeltaqException an error that another list would not fix, such as that of an unknown token, or a {@link LostException}
     */
    public void run(Iterable<Entry> source) {
        try {
            for (Entry entry : source) {
                handle(entry);
            }
        } catch (CancelledException e) {
            // The thread is interrupted, or the client is closed.
            return;
        }
    }

    private void unreadable(Exception failure) {
        warn("a source can't be read, so its last list stays in force: " + failure);
    }

    private void warn(String text) {
        queue.transport.log.log(System.Logger.Level.WARNING, "deltaq: " + text + " (queue " + queue.name() + ", source " + sequence.source + ")");
    }

    private void handle(Entry entry) {
        try {
            apply(entry);
        } catch (DeltaqException failure) {
            if (!isAboutTheEntry(failure)) {
                throw failure;
            }
            if (options.onRefused != null) {
                options.onRefused.accept(entry, failure);
            } else {
                warn("an entry of a source is refused: " + failure.getMessage());
            }
        } catch (RuntimeException failure) {
            // The list itself has thrown it.
            unreadable(failure);
        }
    }

    /**
     * Sends the whole list of the source. A call whose error may pass is repeated until the thread is interrupted or the client is closed.
     *
     * @param objects the list
     * @return what was queued
     */
    public Produced replace(Iterable<?> objects) {
        return apply(new Entry(Check.given("objects", objects, "a list, which may be empty"), List.of()));
    }

    /**
     * Sends changes of the source. A call whose error may pass is repeated until the thread is interrupted or the client is closed.
     *
     * @param changes the changes
     * @return what was queued
     * @throws LostException if the queue lacks earlier changes: send the list before others
     */
    public Produced apply(List<DeltaCall> changes) {
        return apply(new Entry(null, changes));
    }

    private Produced apply(Entry entry) {
        try {
            turn.lockInterruptibly();
        } catch (InterruptedException e) {
            throw Scope.interrupted(null);
        }
        try {
            return entry.list() != null || entry.changes().size() <= 1 ? send(entry) : sendParts(entry.changes());
        } finally {
            turn.unlock();
        }
    }

    private Produced sendParts(List<DeltaCall> changes) {
        Deque<List<DeltaCall>> parts = new ArrayDeque<>();
        for (int start = 0; start < changes.size(); start += CHANGES_MAX) {
            parts.add(changes.subList(start, Math.min(start + CHANGES_MAX, changes.size())));
        }
        List<Produced> replies = new ArrayList<>();
        DeltaqException refusal = null;
        long passed = 0;
        while (!parts.isEmpty()) {
            List<DeltaCall> part = parts.poll();
            try {
                Produced reply = send(new Entry(null, part));
                long before = passed;
                List<InvalidObject> moved = reply.invalidObjects().stream()
                        .map(invalid -> new InvalidObject(invalid.index() + before, invalid.key(), invalid.code(), invalid.detail())).toList();
                replies.add(reply.with(moved, reply.invalid()));
            } catch (DeltaqException failure) {
                if (Failures.status(failure) == 413 && part.size() > 1) {
                    int middle = part.size() / 2;
                    parts.addFirst(part.subList(middle, part.size()));
                    parts.addFirst(part.subList(0, middle));
                    continue;
                }
                if (!isAboutTheEntry(failure)) {
                    throw failure;
                }
                // The other parts are still sent.
                refusal = refusal == null ? failure : refusal;
            }
            passed += part.size();
        }
        if (refusal != null) {
            throw refusal;
        }
        return sum(replies);
    }

    /** The reply to a call from the replies to its parts. */
    private static Produced sum(List<Produced> replies) {
        Produced last = replies.get(replies.size() - 1);
        long[] sums = new long[5];
        List<InvalidObject> invalid = new ArrayList<>();
        for (Produced reply : replies) {
            sums[0] += reply.queued();
            sums[1] += reply.merged();
            sums[2] += reply.ignored();
            sums[3] += reply.stale();
            sums[4] += reply.invalid();
            invalid.addAll(reply.invalidObjects());
        }
        return new Produced(last.resourceVersion(), sums[0], sums[1], sums[2], sums[3], last.duplicate(), last.sequence(), last.incarnation(), last.life(),
                last.keys(), sums[4], invalid.subList(0, Math.min(invalid.size(), INVALID_SHOWN)));
    }

    /** Whether a refusal is about the list or the change, so that the next one may be accepted. */
    private static boolean isAboutTheEntry(DeltaqException failure) {
        if (failure instanceof EncodeException) {
            return true;
        }
        if (!(failure instanceof ProblemException problem) || problem.isRetryable()) {
            return false;
        }
        // The server refuses an object that is nested too deeply with 400.
        return problem.status() == 409 || problem.status() == 413 || problem.status() == 422 || problem.is(Codes.INVALID_JSON);
    }

    /** Applies an entry by one call. */
    private Produced send(Entry entry) {
        boolean isList = entry.list() != null;
        sequence.check(isList);
        while (true) {
            long number = sequence.next();
            Retry.Attempts attempts = queue.transport.endless();
            Produced reply;
            try {
                reply = call(entry, number, attempts);
            } catch (RuntimeException failure) {
                if (!(failure instanceof DeltaqException known && isAboutTheEntry(known))) {
                    sequence.forget();
                }
                throw failure;
            }
            if (sequence.applied(reply, isList, attempts.failures)) {
                logInvalid(reply);
                return reply;
            }
        }
    }

    private Produced call(Entry entry, long number, Retry.Attempts attempts) {
        Transport transport = queue.transport;
        if (entry.list() == null) {
            DeltasOptions given = new DeltasOptions().source(sequence.source).sequence(number).skipInvalid(options.skipInvalid);
            Queue.ListCall call = queue.deltasCall(entry.changes(), given);
            return transport.fetchEndlessly(transport.scope, call.request(), call.reader(), attempts);
        }
        ReplaceOptions given = new ReplaceOptions().source(sequence.source).sequence(number).onlyChanged(options.onlyChanged)
                .allowEmpty(options.allowEmpty).skipInvalid(options.skipInvalid);
        given.maxDeletePercent = options.maxDeletePercent;
        given.maxDeletes = options.maxDeletes;
        Queue.ReplaceCall call = queue.replaceCall(entry.list(), given);
        return transport.fetchEndlessly(transport.scope, call.request(), call.reader(), attempts).produced();
    }

    private void logInvalid(Produced reply) {
        for (InvalidObject invalid : reply.invalidObjects()) {
            warn("the queue refuses an object, which is left out; its key keeps what it has: key " + invalid.key() + ", " + invalid.code() + ": "
                    + invalid.detail());
        }
        long more = reply.invalid() - reply.invalidObjects().size();
        if (more > 0) {
            warn("the queue refuses " + more + " more objects, which are left out");
        }
    }
}
