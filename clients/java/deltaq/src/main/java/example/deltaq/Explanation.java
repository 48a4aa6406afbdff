package example.deltaq;

import java.time.Instant;

/**
 * Why a key is not delivered.
 *
 * @param key the key
 * @param reason such as leased, delayed, parked, paused or queued
 * @param explanation the reason, for people
 * @param lease the lease, or null
 * @param leasedAt when it began, or null
 * @param dueAt when the key is due, or null
 * @param latestAt when a debounced key is delivered at the latest, or null
 * @param floorAt before when no change delivers the key, or null
 * @param failures the failures since the last acknowledgement
 * @param lastError the error of the last one, or null
 * @param headStartMs how much earlier the key counts as arrived, or null
 * @param priority its priority, or null
 * @param ahead the number of keys that are delivered before, up to 5,000, or null
 * @param hasMoreAhead whether there are more
 * @param group the group of the key, or null
 * @param groupShare the share of the group in the time of the workers, from 0 to 1, or null
 */
@Needs("key")
public record Explanation(
        String key, String reason, String explanation, Lease lease, Instant leasedAt, Instant dueAt, Instant latestAt, Instant floorAt, long
        failures, String lastError, Long headStartMs, Long priority, Long ahead, boolean hasMoreAhead, String group, Double groupShare) {}
