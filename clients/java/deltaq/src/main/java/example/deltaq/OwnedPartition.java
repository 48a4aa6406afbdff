package example.deltaq;

/**
 * A partition that a node owns.
 *
 * @param partition the number
 * @param epoch the epoch of its writer; null without a store
 */
public record OwnedPartition(long partition, Long epoch) {}
