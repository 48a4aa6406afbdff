package example.deltaq;

import java.time.Duration;

/**
 * How long events are kept for the history.
 *
 * @param age the longest age
 * @param bytes the largest size
 */
public record Retention(Duration age, Long bytes) {}
