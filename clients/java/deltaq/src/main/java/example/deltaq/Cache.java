package example.deltaq;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * Applies the rows of watches to a store. It makes no calls.
 *
 * <p>A watch from version 0 begins with all objects. Once all of them have arrived, they replace the contents of the store. If the stream ends earlier, the
 * store does not change.
 */
final class Cache {
    /**
     * A change of a store. An addition has no old object, and a deletion no new one.
     *
     * @param isInInitialList true for an addition by the first list
     * @param isFinalStateUnknown true for a deletion that a list has shown, or whose last state the server does not know
     */
    record Change(QueueObject old, QueueObject now, boolean isInInitialList, boolean isFinalStateUnknown) {}

    final Store store;
    /** Whether the store has had a complete list. */
    private boolean hasSynced;
    /** The version from which the next watch goes on; 0 for a watch that begins with all objects. */
    private long version;
    /** The objects of a list that is not complete. */
    private Map<String, QueueObject> list = new HashMap<>();

    Cache(Store store) {
        this.store = store;
    }

    boolean hasSynced() {
        return hasSynced;
    }

    long version() {
        return version;
    }

    /** The version for a new watch. */
    long begin() {
        list = new HashMap<>();
        return version;
    }

    /** Forgets the version: the next watch begins with all objects. */
    void expire() {
        version = 0;
    }

    /** Applies a row, and calls a function with each change of the store. */
    void apply(WatchRow row, Consumer<Change> notify) {
        boolean isListing = version == 0;
        switch (row.type()) {
            case WatchType.ADDED, WatchType.UPDATED -> {
                QueueObject object = new QueueObject(row.key(), row.source(), row.resourceVersion(), row.object());
                if (isListing) {
                    list.put(row.key(), object);
                    return;
                }
                put(object, false, notify);
            }
            case WatchType.DELETED -> {
                if (isListing) {
                    list.remove(row.key());
                    return;
                }
                boolean isKnown = !row.finalStateUnknown() && row.object() != null;
                remove(row.key(), isKnown ? new QueueObject(row.key(), row.source(), row.resourceVersion(), row.object()) : null, notify);
            }
            case WatchType.BOOKMARK -> {
                if (isListing) {
                    if (!row.initialEventsEnd()) {
                        return;
                    }
                    endList(notify);
                }
            }
            default -> {
                // A newer server may have more types.
                return;
            }
        }
        if (row.resourceVersion() <= 0) {
            throw new ReplyException("the server", 200, true, Duration.ZERO, "a row of a watch has no version");
        }
        version = row.resourceVersion();
    }

    private void endList(Consumer<Change> notify) {
        for (String key : store.keys()) {
            if (!list.containsKey(key)) {
                remove(key, null, notify);
            }
        }
        new TreeMap<>(list).forEach((key, object) -> put(object, !hasSynced, notify));
        hasSynced = true;
        list = new HashMap<>();
    }

    private void put(QueueObject object, boolean isInInitialList, Consumer<Change> notify) {
        QueueObject old = store.put(object);
        if (old == null || !old.equals(object)) {
            notify.accept(new Change(old, object, isInInitialList, false));
        }
    }

    /** Removes a key. The state is the last one, or null if it is unknown. */
    private void remove(String key, QueueObject state, Consumer<Change> notify) {
        QueueObject old = store.remove(key);
        if (old != null) {
            notify.accept(new Change(state == null ? old : state, null, false, state == null));
        }
    }
}
