package example.deltaq;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A running worker. One thread owns its fields; handlers and calls run in others, and report to it by events. */
final class WorkerRun {
    /** How long the last calls of a worker that stops may take. */
    static final Duration LAST_CALLS = Duration.ofSeconds(5);
    /** The longest pauses before an extension is repeated. */
    private static final Duration EXTEND_FIRST = Duration.ofMillis(50);
    private static final Duration EXTEND_MAX = Duration.ofSeconds(1);

    private final Worker worker;
    private final WorkerCalls calls;
    private final WorkerOptions options;
    private final LinkedBlockingQueue<Runnable> events = new LinkedBlockingQueue<>();
    private final Leases leases = new Leases();
    private final Breaker breaker;
    /** Keys whose handlers have not begun. */
    private final Deque<Leases.Held> waiting = new ArrayDeque<>();
    /** Handlers that run, with those whose leases are lost. */
    private int running;
    /** Outcomes that no call has yet. */
    private final Deque<Settle> settles = new ArrayDeque<>();
    /** The running pop; null if none runs. */
    private Popping pop;
    /** The outcomes of the running settle; null if none runs. */
    private List<Settle> settling;
    private int extendFailures;
    private ExecutorService threads;
    /** The scope of all calls except the waiting pop. Its end is that of the worker. */
    private Scope scope;
    private boolean isStopping;
    private RuntimeException error;
    /** When a worker that stops no longer waits: first for handlers, then for its last calls. */
    private long end = Clock.FAR;
    private boolean isLastWait;
    private boolean isAbandoned;

    /** A running pop. Its repeats have the same id, and so the same leases. */
    private static final class Popping {
        final PopOptions options;
        Scope scope;
        /** Whether the worker has stopped: the pop is repeated once, so that the keys that it has leased are released. */
        boolean isCancelled;
        long deadline = Clock.FAR;

        Popping(PopOptions options) {
            this.options = options;
        }
    }

    WorkerRun(Worker worker) {
        this.worker = worker;
        this.calls = new WorkerCalls(worker);
        this.options = worker.options;
        this.breaker = new Breaker(worker.options.breaker);
    }

    /** May be called by any thread. */
    void askToStop() {
        events.add(() -> stop(null));
    }

    void work() {
        boolean wasInterrupted = false;
        threads = Threads.perTask();
        Scope client = worker.queue.transport.scope;
        scope = Scope.within(client);
        Scope.Link link = client.onEnd(this::askToStop);
        try {
            while (true) {
                startHandlers();
                startCalls();
                if (isDone()) {
                    break;
                }
                if (isStopping && running == 0 && !isLastWait) {
                    isLastWait = true;
                    end = Clock.after(Clock.now(), LAST_CALLS);
                }
                try {
                    next();
                } catch (InterruptedException e) {
                    wasInterrupted = true;
                    stop(null);
                }
            }
        } finally {
            link.close();
            scope.cancel();
            scope.close();
            threads.shutdown();
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
        if (error != null) {
            throw error;
        }
    }

    /** Waits for the next event, or until something needs attention. */
    private void next() throws InterruptedException {
        long now = Clock.now();
        long popEnd = pop == null ? Clock.FAR : pop.deadline;
        long attention = Math.min(Math.min(Math.min(leases.next, breaker.next(now)), end), popEnd);
        Runnable event = events.poll(Math.max(attention - now, 0), TimeUnit.NANOSECONDS);
        while (event != null) {
            event.run();
            // The ends of other handlers go into the same call.
            event = events.poll();
        }
        now = Clock.now();
        if (leases.next <= now) {
            attend();
        }
        if (pop != null && pop.deadline <= now) {
            pop.deadline = Clock.FAR;
            pop.scope.cancel();
        }
        if (end <= now) {
            endOfWait();
        }
    }

    /** Whether a worker that stops waits for nothing any more. */
    private boolean isDone() {
        boolean isIdle = running == 0 && pop == null && settling == null && settles.isEmpty();
        return isStopping && (isIdle || isAbandoned);
    }

    private void startHandlers() {
        while (running < options.concurrency && !waiting.isEmpty() && breaker.mayStart(Clock.now())) {
            Leases.Held next = waiting.poll();
            String id = next.job.lease().id();
            if (leases.held.get(id) != next) {
                continue;
            }
            running++;
            breaker.started(id);
            threads.execute(() -> handle(next));
        }
    }

    /** Runs the handler. */
    private void handle(Leases.Held held) {
        Throwable thrown = null;
        held.runsIn(Thread.currentThread());
        try {
            worker.handler.handle(held.job);
        } catch (Throwable e) {
            // Also errors, such as that of a stack that overflows: the key has failed, and the worker goes on.
            thrown = e;
        } finally {
            held.runsIn(null);
            // The next task of this thread is not interrupted.
            Thread.interrupted();
        }
        Throwable end = thrown;
        Settle settle = settle(held.job, end);
        events.add(() -> handled(held, settle, end));
    }

    /** The outcome of a handler. There is one in any case: without it, the handler would count as running for ever. */
    private static Settle settle(Job job, Throwable thrown) {
        try {
            return Outcome.settle(job, thrown);
        } catch (Throwable e) {
            return Settle.nack(job.lease().id()).withError((thrown == null ? e : thrown).getClass().getName());
        }
    }

    /** Pops if a handler is free for its keys. Outcomes are sent with the pop, or else alone. */
    private void startCalls() {
        boolean isFree = running < options.concurrency && breaker.mayStart(Clock.now());
        if (!isStopping && pop == null && waiting.isEmpty() && isFree) {
            startPop();
        }
        if (settling == null && !settles.isEmpty()) {
            List<Settle> sent = nextSettles();
            settling = sent;
            threads.execute(() -> {
                WorkerCalls.SettleResult result = calls.settle(scope, sent);
                events.add(() -> settled(result));
            });
        }
    }

    private List<Settle> nextSettles() {
        List<Settle> next = new ArrayList<>();
        while (next.size() < Leases.BATCH_MAX && !settles.isEmpty()) {
            next.add(settles.poll());
        }
        return next;
    }

    private void startPop() {
        PopOptions given = new PopOptions();
        given.wait = options.wait;
        given.max = breaker.isPaused() ? 1 : options.batch;
        given.leaseDuration = options.leaseDuration;
        given.worker = options.name;
        given.id = Queue.newId();
        given.group = options.group;
        given.withKnown = options.withKnown;
        given.withDiff = options.withDiff;
        given.settle = nextSettles();
        pop = new Popping(given);
        sendPop();
    }

    private void sendPop() {
        Popping sent = pop;
        Scope within = Scope.within(scope);
        sent.scope = within;
        PopOptions given = sent.options.copy();
        threads.execute(() -> {
            WorkerCalls.PopResult result = calls.pop(within, given);
            events.add(() -> popped(result));
        });
    }

    private void handled(Leases.Held held, Settle chosen, Throwable thrown) {
        running--;
        Job job = held.job;
        boolean isChosen = Outcome.in(thrown) != null;
        boolean wasAbandoned = job.isStopping() && thrown != null && !isChosen && isInterrupt(thrown);
        if (chosen.as().equals(SettleAs.NACK) && !(Outcome.in(thrown) instanceof Nack) && !wasAbandoned && !job.isLeaseLost()) {
            logFailure(job, chosen.error(), thrown);
        }
        if (leases.held.get(job.lease().id()) != held) {
            attendBreaker(job, Settle.release(job.lease().id()));
            return;
        }
        held.isEnded = true;
        // If the worker has ended the handler, the key has not failed.
        Settle settle = wasAbandoned ? Settle.release(job.lease().id()) : chosen;
        settles.add(settle);
        attendBreaker(job, settle);
    }

    private void logFailure(Job job, String text, Throwable thrown) {
        String line = "deltaq: a handler has failed: " + text + " (queue " + worker.queue.name() + ", key " + job.key() + ", attempt " + job.attempt() + ")";
        Failures.log(worker.queue.transport.log, System.Logger.Level.WARNING, line, thrown);
    }

    /** Whether an exception comes from the interrupt of the thread. */
    private static boolean isInterrupt(Throwable thrown) {
        Throwable next = thrown;
        for (int depth = 0; next != null && depth < 100; depth++) {
            if (next instanceof InterruptedException || next instanceof CancelledException || next instanceof java.io.InterruptedIOException
                    || next instanceof java.nio.channels.ClosedByInterruptException || next instanceof java.util.concurrent.CancellationException) {
                return true;
            }
            next = Outcome.cause(next);
        }
        return false;
    }

    /** Notes how a handler has ended. If the worker pauses, it returns the keys whose handlers have not begun. */
    private void attendBreaker(Job job, Settle settle) {
        switch (breaker.ended(Clock.now(), job.lease().id(), job.key(), settle.as())) {
            case BEGINS -> {
                worker.pauses.incrementAndGet();
                releaseWaiting(0);
                worker.warn("the worker pauses, because keys in a row have failed: " + breaker.failures() + " failures, pause "
                        + Durations.format(breaker.pause()) + ", the last error: " + settle.error());
            }
            case GOES_ON -> worker.warn("the worker goes on, because a key has succeeded");
            default -> {}
        }
    }

    /** Removes the leases that a call has settled, and counts the results. */
    private void forget(List<Settle> sent, List<Settled> results) {
        for (Settled settled : results) {
            worker.count(settled);
            Leases.Held held = leases.held.get(settled.leaseId());
            if (held != null && Boolean.TRUE.equals(settled.parked())) {
                worker.warn("a key is parked: it is not delivered until it changes or is redriven: key " + held.job.key() + ", attempt "
                        + held.job.attempt() + ", as " + settled.as());
            }
        }
        for (Settle settle : sent) {
            leases.remove(settle.leaseId());
        }
    }

    private void popped(WorkerCalls.PopResult result) {
        Popping ended = pop;
        ended.scope.close();
        ended.deadline = Clock.FAR;
        forget(result.dropped(), List.of());
        boolean wasCancelled = isStopping && !ended.isCancelled && result.error() instanceof CancelledException;
        if (wasCancelled && result.isUnknown()) {
            // The worker has cancelled this pop. Its repeat returns the keys that it has leased, without waiting for others.
            ended.isCancelled = true;
            ended.options.wait = Duration.ZERO;
            ended.options.settle = result.settles();
            ended.deadline = Clock.after(Clock.now(), LAST_CALLS);
            sendPop();
            return;
        }
        pop = null;
        if (wasCancelled) {
            // No server has received this pop, so it has leased nothing, and settled nothing.
            putBack(result.settles());
            return;
        }
        if (result.error() != null) {
            popFailed(result);
            return;
        }
        forget(result.settles(), result.popped().settled());
        for (PoppedItem item : result.popped().items()) {
            waiting.add(leases.take(new Job(item, worker.queue.name()), result.receivedAt()));
        }
        if (isStopping) {
            releaseWaiting(0);
        } else if (breaker.isPaused()) {
            // A pop that has begun before the pause has no key to try.
            releaseWaiting(breaker.mayStart(Clock.now()) ? 1 : 0);
        }
    }

    private void putBack(List<Settle> unsent) {
        for (int index = unsent.size() - 1; index >= 0; index--) {
            settles.addFirst(unsent.get(index));
        }
    }

    private void popFailed(WorkerCalls.PopResult result) {
        RuntimeException failure = result.error();
        if (failure instanceof ProblemException problem && problem.settled() != null) {
            forget(result.settles(), problem.settled());
        } else {
            // Whether they took effect is unknown; a repeat has the same effect.
            putBack(result.settles());
        }
        if (Failures.is(failure, Codes.QUEUE_CLOSED)) {
            stop(null);
        } else if (isStopping) {
            worker.warn("the last pop of a worker has failed; keys that it has leased are delivered again when their leases expire: " + failure.getMessage());
        } else {
            stop(failure);
        }
    }

    private void settled(WorkerCalls.SettleResult result) {
        List<Settle> sent = settling;
        settling = null;
        if (result.error() != null) {
            // Their leases expire.
            forget(sent, List.of());
            stop(result.error());
            return;
        }
        forget(sent, result.list().settled());
    }

    /** Extends the leases that are due, and ends the handlers of those that are lost. */
    private void attend() {
        Leases.Attention attention = leases.attend(Clock.now());
        lose(attention.lost(), "no extension has succeeded in time");
        if (!attention.extend().isEmpty()) {
            threads.execute(() -> {
                WorkerCalls.ExtendResult result = calls.extend(scope, attention.extend(), attention.patience());
                events.add(() -> extended(result));
            });
        }
    }

    private void lose(List<Leases.Held> lost, String reason) {
        for (Leases.Held held : lost) {
            worker.lost.incrementAndGet();
            worker.warn("a lease is lost, because " + reason + ": key " + held.job.key() + ", lease " + held.job.lease().id());
            held.end(Job.End.LEASE_LOST);
        }
    }

    private void extended(WorkerCalls.ExtendResult result) {
        if (result.error() == null) {
            extendFailures = 0;
            worker.queue.transport.rows.answered(calls.extension());
            lose(leases.extended(result.list(), result.sentAt()), "the server has ended it");
            return;
        }
        extendFailures++;
        RuntimeException failure = result.error();
        Duration asked = Retry.atMost(Failures.retryAfter(failure), Retry.ASKED_MAX);
        leases.notExtended(Clock.after(Clock.now(), Retry.backoff(EXTEND_FIRST, EXTEND_MAX, extendFailures).plus(asked)));
        if (scope.isCancelled()) {
            return;
        }
        worker.queue.transport.rows.failed(calls.extension(), "", failure);
        // If the queue was deleted, its leases are lost.
        if (!Failures.isTemporary(failure) && !Failures.is(failure, Codes.QUEUE_NOT_FOUND)) {
            stop(failure);
        }
    }

    /** Begins the end: no handler begins, and waiting keys are released, with those of a pop whose reply has not arrived. */
    private void stop(RuntimeException failure) {
        boolean isClientClosed = worker.queue.transport.scope.isCancelled();
        if (error == null && !isClientClosed) {
            error = failure;
        }
        if (isClientClosed && !isLastWait) {
            // No call succeeds any more, so no handler can end its lease.
            end = Clock.now();
        }
        if (isStopping) {
            return;
        }
        isStopping = true;
        if (isClientClosed) {
            worker.warn("the client was closed before its worker; keys that the worker has leased are delivered again when their leases expire");
        } else {
            end = Clock.after(Clock.now(), options.grace);
        }
        releaseWaiting(0);
        if (pop != null) {
            pop.scope.cancel();
        }
    }

    /** Returns the keys whose handlers have not begun, except some. */
    private void releaseWaiting(int kept) {
        while (waiting.size() > kept) {
            Leases.Held held = waiting.pollLast();
            String id = held.job.lease().id();
            if (leases.held.get(id) == held) {
                held.isEnded = true;
                settles.add(Settle.release(id));
            }
        }
    }

    /** Interrupts the handlers that still run. A handler that does not return then is not waited for: its lease expires. */
    private void endOfWait() {
        if (isLastWait) {
            isAbandoned = true;
            worker.warn("the worker has stopped without a reply to its last calls, or without the end of a handler; the leases end by themselves: "
                    + running + " handlers");
            return;
        }
        isLastWait = true;
        end = Clock.after(Clock.now(), LAST_CALLS);
        for (Leases.Held held : leases.held.values()) {
            held.end(Job.End.STOPPING);
        }
    }
}
