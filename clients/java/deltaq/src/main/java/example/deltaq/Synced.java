package example.deltaq;

import java.util.concurrent.CompletableFuture;

/** What has had a complete list: an informer, or one of its handlers. */
public interface Synced {
    /**
     * Completes when the first list is complete.
     *
     * @return a future
     */
    CompletableFuture<Void> synced();

    /**
     * Whether the first list is complete.
     *
     * @return true if it is
     */
    default boolean hasSynced() {
        return synced().isDone();
    }
}
