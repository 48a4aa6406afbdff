package example.deltaq;

/**
 * An error of parked keys.
 *
 * @param error the error; empty for keys without one
 * @param keys the number of keys
 * @param firstKey the first of them
 */
public record ParkedError(String error, long keys, String firstKey) {}
