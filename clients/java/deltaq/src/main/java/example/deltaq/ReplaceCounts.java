package example.deltaq;

/**
 * What a Replace has done.
 *
 * @param replaced objects that were queued
 * @param deleted deletions that were queued
 * @param unchanged objects that were equal to the newest ones
 * @param skipped objects whose key another call has changed meanwhile
 * @param takenOver keys that another source owned
 * @param stale objects that were not newer
 */
public record ReplaceCounts(long replaced, long deleted, long unchanged, long skipped, long takenOver, long stale) {}
