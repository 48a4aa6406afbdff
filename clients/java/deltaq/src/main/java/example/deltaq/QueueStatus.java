package example.deltaq;

import java.time.Instant;
import java.util.List;

/**
 * The counts and flags of a queue.
 *
 * @param ready keys that are ready
 * @param delayed keys that are delayed
 * @param leased keys that are leased
 * @param parked keys that are parked
 * @param known known objects
 * @param heldBytes approximately what the queue takes in memory
 * @param waiters waiting pops
 * @param hasSynced whether the initial list is processed
 * @param initialRemaining keys of it that are not
 * @param resourceVersion the number of the last event
 * @param changes the changes since the queue was loaded
 * @param oldestReadyAgeMs how long the first ready key has waited
 * @param oldestUnacknowledgedAgeMs the age of the oldest change that is not acknowledged
 * @param paused whether delivery is stopped
 * @param heldUntil the end of a hold, or null
 * @param pauseReason why the queue has paused itself, or null
 * @param closed whether it is closed
 * @param drained whether it is closed and empty
 * @param buildingIndexes indexes that are being built
 * @param buildingGroups whether keys are being moved to other groups
 * @param lastReplace the latest Replace, or null
 * @param follow the progress of a follower, or null
 * @param push the sender, or null
 * @param hook the hook, or null
 * @param followers the queues that follow this one
 */
@Needs("followers")
public record QueueStatus(
        long ready, long delayed, long leased, long parked, long known, long heldBytes, long waiters, boolean hasSynced, long initialRemaining, long
        resourceVersion, long changes, long oldestReadyAgeMs, long oldestUnacknowledgedAgeMs, boolean paused, Instant heldUntil, String pauseReason,
        boolean closed, boolean drained, List<String> buildingIndexes, boolean buildingGroups, LastReplace lastReplace, FollowStatus follow,
        PushStatus push, HookStatus hook, List<String> followers) {}
