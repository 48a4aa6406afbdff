package example.deltaq;

/**
 * A value of an index.
 *
 * @param value the value
 * @param keys the number of keys that have it
 */
public record IndexValue(String value, long keys) {}
