package example.deltaq;

import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** What may end calls before their replies: a client that is closed, or a worker that stops. The end of a scope ends those inside it. */
final class Scope implements AutoCloseable {
    private final CountDownLatch end = new CountDownLatch(1);
    private final Set<Runnable> callbacks = ConcurrentHashMap.newKeySet();
    private final Link outer;

    /** Forgets a callback. */
    interface Link extends AutoCloseable {
        @Override
        void close();
    }

    Scope() {
        outer = () -> {};
    }

    private Scope(Scope around) {
        outer = around.onEnd(this::cancel);
    }

    /** A scope inside another one. Closing it forgets it, and cancels nothing. */
    static Scope within(Scope outer) {
        return new Scope(outer);
    }

    /** Calls a function at the end of the scope, or at once if it has ended. */
    Link onEnd(Runnable callback) {
        // Not the caller's object: the same function may be added twice.
        Runnable own = callback::run;
        callbacks.add(own);
        if (isCancelled() && callbacks.remove(own)) {
            own.run();
        }
        return () -> callbacks.remove(own);
    }

    void cancel() {
        end.countDown();
        for (Runnable callback : callbacks) {
            if (callbacks.remove(callback)) {
                callback.run();
            }
        }
    }

    boolean isCancelled() {
        return end.getCount() == 0;
    }

    @Override
    public void close() {
        outer.close();
    }

    /**
     * Waits for a time.
     *
     * @throws CancelledException if the scope ends first, or the thread is interrupted
     */
    void sleep(Duration pause, Throwable failure) {
        boolean hasEnded;
        try {
            hasEnded = end.await(Math.max(Clock.nanos(pause), 0), TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            throw interrupted(failure);
        }
        if (hasEnded) {
            throw cancelled(failure);
        }
    }

    static CancelledException cancelled(Throwable failure) {
        return new CancelledException("the call was cancelled", failure);
    }

    static CancelledException interrupted(Throwable failure) {
        Thread.currentThread().interrupt();
        return new CancelledException("the thread was interrupted", failure);
    }
}
