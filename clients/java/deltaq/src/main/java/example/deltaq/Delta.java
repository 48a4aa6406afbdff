package example.deltaq;

import java.time.Instant;

/**
 * A change of a key.
 *
 * @param type one of {@link DeltaType}
 * @param resourceVersion the number of the change
 * @param queuedAt when it was queued
 * @param object the object as it was sent; for a deletion the last one
 * @param finalStateUnknown whether the object of a deletion may be older than the last state
 * @param source the producer, or null
 * @param coalesced the number of older changes that were merged into this one
 * @param traceparent the trace of the call that produced it, or null
 */
public record Delta(
        String type, long resourceVersion, Instant queuedAt, Json object, boolean finalStateUnknown, String source, long coalesced, String
        traceparent) {}
