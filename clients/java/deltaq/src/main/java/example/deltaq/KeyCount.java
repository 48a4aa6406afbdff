package example.deltaq;

/**
 * The number of keys that a call has changed.
 *
 * @param keys the number
 */
@Needs("keys")
record KeyCount(long keys) {}
