package example.deltaq;

/**
 * A token bucket for the failures of all keys.
 *
 * @param qps failures a second
 * @param burst failures at once
 */
public record Bucket(Double qps, Long burst) {}
