package example.deltaq;

import java.util.List;

/**
 * The reply to a Replace.
 *
 * @param resourceVersion the number of the newest event of the queue
 * @param queued the number of changes that were queued
 * @param merged adds of keys that were already ready, in mode keys
 * @param ignored changes that change nothing
 * @param stale objects that were not newer than the newest state of their key
 * @param duplicate whether the sequence number had been applied before, so that this call has changed nothing
 * @param sequence the last number of the source that was applied, for a call with a number
 * @param incarnation the id of the queue; if it has changed, the queue was deleted and created again
 * @param life the life to which the version belongs; if it has changed, changes may be lost
 * @param invalid the number of objects that were left out
 * @param invalidObjects the first 10 of them
 * @param replaced objects that were queued
 * @param deleted deletions that were queued
 * @param unchanged objects that were equal to the newest ones
 * @param skipped objects whose key another call has changed meanwhile
 * @param takenOver keys that another source owned
 */
@Needs("invalid_objects")
public record ReplaceReply(
        long resourceVersion, long queued, long merged, long ignored, long stale, boolean duplicate, Long sequence, String incarnation, String life,
        long invalid, List<InvalidObject> invalidObjects, long replaced, long deleted, long unchanged, long skipped, long takenOver) {
    /**
     * The members that every call that produces has.
     *
     * @return the members
     */
    public Produced produced() {
        return new Produced(resourceVersion, queued, merged, ignored, stale, duplicate, sequence, incarnation, life, null, invalid, invalidObjects);
    }

    ReplaceReply with(List<InvalidObject> objects) {
        return new ReplaceReply(resourceVersion, queued, merged, ignored, stale, duplicate, sequence, incarnation, life, invalid, objects, replaced, deleted,
                unchanged, skipped, takenOver);
    }
}
