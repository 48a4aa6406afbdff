package example.deltaq;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;

/**
 * Works on a key. A return is an acknowledgement, and an exception a failure with its text, except an {@link Outcome}, which says how the lease ends and may
 * also be a cause of the exception. Failures are logged with the key and the attempt, except a {@link Nack}, which the handler has chosen; so is a key that is
 * parked.
 *
 * <p>The result of a lambda is ignored. {@code job -> shop.storeAsync(job)} compiles, and acknowledges the key before the future ends:
 * {@code Handler.async(job -> shop.storeAsync(job))} waits for it.
 *
 * <p>The thread of a handler is interrupted when the lease is lost, because another worker may hold the key: the handler must write nothing more, and its
 * outcome has no effect. It is also interrupted when a worker that stops no longer waits. {@link Job#isLeaseLost} and {@link Job#isStopping} say which.
 */
@FunctionalInterface
public interface Handler {
    /**
     * Works on a key.
     *
     * @param job the key, with its lease and its changes
     * @throws Exception if the work has failed
     */
    void handle(Job job) throws Exception;

    /** Works on a key without blocking a thread of its own. */
    @FunctionalInterface
    interface Async {
        /**
         * Begins to work on a key.
         *
         * @param job the key, with its lease and its changes
         * @return completes when the work has ended, with an exception if it has failed
         * @throws Exception if the work has failed at once
         */
        CompletionStage<?> handle(Job job) throws Exception;
    }

    /**
     * A handler that waits for a future. If the lease is lost, the future is cancelled.
     *
     * @param handler begins the work
     * @return the handler
     */
    static Handler async(Async handler) {
        Check.given("handler", handler, "a function that returns a CompletableFuture");
        return job -> {
            CompletionStage<?> stage = handler.handle(job);
            if (stage == null) {
                throw new IllegalStateException("the handler has returned null instead of a CompletableFuture");
            }
            CompletableFuture<?> future = stage.toCompletableFuture();
            try {
                future.get();
            } catch (InterruptedException e) {
                future.cancel(true);
                throw e;
            } catch (ExecutionException e) {
                if (e.getCause() instanceof Exception cause) {
                    throw cause;
                }
                throw e;
            }
        };
    }
}
