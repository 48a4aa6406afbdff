package example.deltaq;

import java.time.Instant;

/**
 * A queue with its settings and its status.
 *
 * @param name the name
 * @param incarnation the id; it changes when the queue is deleted and created again
 * @param life changes each time a server loads the queue
 * @param autoCreated whether a call has created it
 * @param createdAt when it was created
 * @param settings its settings
 * @param status its status
 * @param drained in the reply to a close that drains, whether it is empty; else null
 */
@Needs("incarnation")
public record QueueDocument(
        String name, String incarnation, String life, boolean autoCreated, Instant createdAt, QueueSettings settings, QueueStatus status, Boolean
        drained) {}
