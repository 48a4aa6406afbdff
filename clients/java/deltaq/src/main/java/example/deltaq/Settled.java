package example.deltaq;

import java.time.Instant;

/**
 * The result of a settle for one lease.
 *
 * @param leaseId the lease
 * @param as how it was settled, one of {@link SettleAs}
 * @param result ok, repeated (equivalent to ok), stale, or not_leased
 * @param outcome for a stale lease, how it had ended; else null
 * @param failures the failures of the key, after a nack or a reject
 * @param dueAt when the key is delivered again, after a nack or a reject
 * @param parked whether the key is parked, after a nack or a reject
 * @param heldUntil the end of the hold, after a settle with one
 * @param expiresAt the new end of the lease, after an extension
 * @param expiresInMs the time until then, after an extension
 * @param pendingDeltas the newer changes that wait, after an extension
 * @param deleted whether the newest of them is a deletion, after an extension
 */
public record Settled(
        String leaseId, String as, String result, String outcome, Long failures, Instant dueAt, Boolean parked, Instant heldUntil, Instant
        expiresAt, Long expiresInMs, Long pendingDeltas, Boolean deleted) {
    /**
     * Whether the lease had ended before the call, which has therefore changed nothing.
     *
     * @return true if it had
     */
    public boolean isStale() {
        return "stale".equals(result);
    }
}
