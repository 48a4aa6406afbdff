package example.deltaq;

import java.util.List;

/**
 * The reply to a call that produces.
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
 * @param keys the keys of a rate-limited add, else null
 * @param invalid the number of objects that were left out
 * @param invalidObjects the first 10 of them
 */
@Needs("invalid_objects")
public record Produced(
        long resourceVersion, long queued, long merged, long ignored, long stale, boolean duplicate, Long sequence, String incarnation, String life,
        List<FailedKey> keys, long invalid, List<InvalidObject> invalidObjects) {
    Produced with(List<InvalidObject> objects, long count) {
        return new Produced(resourceVersion, queued, merged, ignored, stale, duplicate, sequence, incarnation, life, keys, count, objects);
    }
}
