package example.deltaq;

/**
 * What a worker has done.
 *
 * @param acknowledged leases that were acknowledged or done
 * @param nacked leases whose work has failed
 * @param rejected leases whose keys were rejected
 * @param released leases that were released
 * @param lost leases that were lost before their handlers ended, or had ended before they were settled
 * @param pauses pauses by {@link WorkerOptions#breaker}
 */
public record WorkerStats(long acknowledged, long nacked, long rejected, long released, long lost, long pauses) {}
