package example.deltaq;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The calls of a worker. A repeat of each has the same effect. */
final class WorkerCalls {
    /** The pauses of a worker whose queue does not exist: they double. */
    static final Duration ABSENT_FIRST = Duration.ofSeconds(1);
    static final Duration ABSENT_MAX = Duration.ofSeconds(15);

    private final Worker worker;
    private final Queue queue;

    WorkerCalls(Worker worker) {
        this.worker = worker;
        this.queue = worker.queue;
    }

    /**
     * The result of a pop.
     *
     * @param popped the reply; null after an error
     * @param settles the outcomes that were sent with the pop
     * @param receivedAt when the reply has arrived
     * @param error why there is no reply
     * @param isUnknown whether a pop that has failed may have leased keys
     * @param dropped outcomes whose leases have ended because the queue was deleted
     */
    record PopResult(Popped popped, List<Settle> settles, long receivedAt, RuntimeException error, boolean isUnknown, List<Settle> dropped) {}

    record SettleResult(SettledList list, RuntimeException error) {}

    record ExtendResult(SettledList list, long sentAt, RuntimeException error) {}

    static RuntimeException failure(Throwable thrown) {
        return thrown instanceof RuntimeException known ? known : new IllegalStateException(thrown);
    }

    /** Pops until there is a reply. While the queue does not exist, it asks again. */
    PopResult pop(Scope scope, PopOptions given) {
        PopOptions options = given.copy();
        List<Settle> dropped = new ArrayList<>();
        Duration pause = ABSENT_FIRST;
        while (true) {
            Retry.Attempts attempts = queue.transport.endless();
            try {
                // Before the document is read, because the leases have begun.
                long[] receivedAt = {0};
                Popped popped = queue.transport.fetchEndlessly(scope, queue.popCall(options), reply -> {
                    receivedAt[0] = Clock.now();
                    return Client.reader(Popped.class).apply(reply);
                }, attempts);
                return new PopResult(popped, options.settle, receivedAt[0], null, false, dropped);
            } catch (RuntimeException | Error e) {
                if (!Failures.is(e, Codes.QUEUE_NOT_FOUND) || scope.isCancelled()) {
                    return new PopResult(null, options.settle, 0, failure(e), attempts.isUnknown, dropped);
                }
            }
            // The queue was deleted, so its leases have ended.
            dropped.addAll(options.settle);
            options.settle = List.of();
            if (options.wait.isZero()) {
                return new PopResult(new Popped(List.of(), List.of(), false, false, null), List.of(), Clock.now(), null, false, dropped);
            }
            if (pause.equals(ABSENT_FIRST)) {
                queue.transport.log.log(System.Logger.Level.WARNING, "deltaq: queue " + queue.name() + " does not exist yet");
            }
            try {
                scope.sleep(pause, null);
            } catch (CancelledException e) {
                return new PopResult(null, List.of(), 0, e, false, dropped);
            }
            pause = absentAfter(pause);
        }
    }

    static Duration absentAfter(Duration pause) {
        return Retry.atMost(pause.multipliedBy(2), ABSENT_MAX);
    }

    /** Settles leases. If the queue was deleted, all of them have ended. */
    SettleResult settle(Scope scope, List<Settle> settles) {
        try {
            Retry.Attempts attempts = queue.transport.endless();
            Request call = queue.settleCall(settles);
            SettledList list = Queue.results(() -> queue.transport.fetchEndlessly(scope, call, Client.reader(SettledList.class), attempts));
            return new SettleResult(list, null);
        } catch (RuntimeException | Error e) {
            boolean isDeleted = Failures.is(e, Codes.QUEUE_NOT_FOUND);
            return isDeleted ? new SettleResult(new SettledList(List.of(), 0), null) : new SettleResult(null, failure(e));
        }
    }

    /** The call of the extensions, also for the log. */
    Request extension() {
        return queue.call("POST", "/extend");
    }

    /** Extends leases once. An extension without a reply has failed after the patience. */
    ExtendResult extend(Scope scope, List<String> leaseIds, Duration patience) {
        long sentAt = Clock.now();
        try {
            Map<String, Object> body = new LinkedHashMap<>();
            body.put("lease_ids", leaseIds);
            if (worker.options.leaseDuration != null) {
                body.put("lease_duration", worker.options.leaseDuration);
            }
            Request call = extension().json(body);
            call.deadline = Clock.after(sentAt, patience);
            SettledList list = Queue.results(() -> queue.transport.fetchOnce(scope, call, Client.reader(SettledList.class)));
            return new ExtendResult(list, sentAt, null);
        } catch (RuntimeException | Error e) {
            return new ExtendResult(null, sentAt, failure(e));
        }
    }
}
