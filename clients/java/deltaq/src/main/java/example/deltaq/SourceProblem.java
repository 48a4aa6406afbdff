package example.deltaq;

import java.time.Instant;

/**
 * Why a queue is not in step with a source.
 *
 * @param detail the problem
 * @param reportedAt when it was reported
 */
public record SourceProblem(String detail, Instant reportedAt) {}
