package example.deltaq;

/**
 * How much of a queue is processed.
 *
 * @param synced whether the initial list is processed
 * @param remaining the keys of it that are not
 * @param reached for a call with a version, whether every change up to it is acknowledged or parked
 * @param resourceVersion that version, or null
 * @param parked the parked keys with a change up to it, or null
 */
@Needs("synced")
public record SyncedReply(boolean synced, long remaining, Boolean reached, Long resourceVersion, Long parked) {}
