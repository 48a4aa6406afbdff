package example.deltaq;

import java.time.Duration;
import java.time.Instant;

/**
 * A producer of a queue.
 *
 * @param source the name
 * @param keys the keys that it owns
 * @param lastCallAt its last call that queued a change, or null
 * @param lastContactAt its last contact, or null
 * @param lastReplacedAt the end of its last Replace, or null
 * @param lastReplace its latest Replace, or null
 * @param sequence its last sequence number that was applied, or null
 * @param staleAfter how long it may be silent, or null
 * @param isStale whether it is silent for longer
 * @param problem why the queue is not in step with it, or null
 */
@Needs("source")
public record Source(
        String source, long keys, Instant lastCallAt, Instant lastContactAt, Instant lastReplacedAt, LastReplace lastReplace, Long sequence,
        Duration staleAfter, boolean isStale, SourceProblem problem) {}
