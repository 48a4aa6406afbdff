package example.deltaq;

/**
 * The reply to a purge.
 *
 * @param keys the keys that were dropped
 * @param deltas the changes that were dropped
 */
public record Purged(long keys, long deltas) {}
