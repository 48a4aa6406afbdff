package example.deltaq;

/**
 * A row of a watch: a change of a key, or a message about the watch.
 *
 * @param type one of {@link WatchType}
 * @param key the key; null in a message
 * @param resourceVersion the version of the row
 * @param object the object, or null
 * @param source the source that owns the key, or null
 * @param finalStateUnknown whether the object of a deletion is null or may be older than the last state
 * @param initialEventsEnd whether this is the first bookmark after all keys
 * @param problem why the watch ends, or null
 */
@Needs("type")
public record WatchRow(
        String type, String key, long resourceVersion, Json object, String source, boolean finalStateUnknown, boolean initialEventsEnd, Problem
        problem) {}
