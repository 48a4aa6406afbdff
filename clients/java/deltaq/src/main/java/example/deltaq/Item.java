package example.deltaq;

import java.time.Instant;
import java.util.List;

/**
 * A key with waiting or leased changes.
 *
 * @param key the key
 * @param state ready, delayed, leased or parked; null for a key that has only failures
 * @param deltas the changes that wait
 * @param leasedDeltas the changes that a worker has
 * @param lease the lease, or null
 * @param leasedAt when it began, or null
 * @param attempt the number of deliveries since the last acknowledgement
 * @param failures the failures since then
 * @param lastError the error of the last failure, or null
 * @param dueAt the end of a delay, a backoff or a debounce window, or null
 * @param source the source that owns the key, or null
 * @param diff the difference from the acknowledged object, if the call asks for it
 * @param diffOmitted why there is none, or null
 */
@Needs("key")
public record Item(
        String key, String state, List<Delta> deltas, List<Delta> leasedDeltas, Lease lease, Instant leasedAt, long attempt, long failures, String
        lastError, Instant dueAt, String source, List<DiffOperation> diff, String diffOmitted) {}
