package example.deltaq;

import java.time.Instant;
import java.util.List;

/**
 * The reply to a pop.
 *
 * @param items the keys
 * @param settled the results of the settles of the pop
 * @param closed whether the queue is closed
 * @param paused whether it is paused
 * @param heldUntil the end of the hold that stops delivery, or null
 */
@Needs("items")
public record Popped(List<PoppedItem> items, List<Settled> settled, boolean closed, boolean paused, Instant heldUntil) {
    /**
     * A list that is missing is empty.
     *
     * @param items the keys
     * @param settled the results of the settles of the pop
     * @param closed whether the queue is closed
     * @param paused whether it is paused
     * @param heldUntil the end of the hold that stops delivery, or null
     */
    public Popped {
        settled = settled == null ? List.of() : settled;
    }
}
