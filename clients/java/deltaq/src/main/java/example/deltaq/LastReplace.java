package example.deltaq;

import java.time.Instant;

/**
 * The latest Replace of a queue or of a source.
 *
 * @param source the source, or null
 * @param counts what it has done
 * @param startedAt when it began
 * @param endedAt when it ended; null while it runs
 * @param aborted whether the server stopped before it ended
 */
public record LastReplace(String source, ReplaceCounts counts, Instant startedAt, Instant endedAt, boolean aborted) {}
