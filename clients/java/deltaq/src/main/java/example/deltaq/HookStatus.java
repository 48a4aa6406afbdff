package example.deltaq;

import java.time.Instant;

/**
 * The outcome of the deliveries of a hook.
 *
 * @param kept deliveries that are kept
 * @param lastAppliedAt the last one that was applied, or null
 * @param lastRejectedAt the last one that was rejected, or null
 * @param lastRejected why, or null
 */
public record HookStatus(long kept, Instant lastAppliedAt, Instant lastRejectedAt, String lastRejected) {}
