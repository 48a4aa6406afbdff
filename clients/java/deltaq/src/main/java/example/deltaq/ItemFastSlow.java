package example.deltaq;

import java.time.Duration;

/**
 * A short wait for the first failures of a key, and a long one later.
 *
 * @param fast the short wait
 * @param slow the long wait
 * @param maxFast how many are short
 */
public record ItemFastSlow(Duration fast, Duration slow, Long maxFast) {}
