package example.deltaq;

import java.time.Instant;

/**
 * A key of a rate-limited add.
 *
 * @param key the key
 * @param failures its failures
 * @param dueAt when it is delivered
 * @param parked whether it is parked
 */
public record FailedKey(String key, long failures, Instant dueAt, boolean parked) {}
