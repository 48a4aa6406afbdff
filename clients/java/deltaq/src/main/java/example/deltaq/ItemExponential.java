package example.deltaq;

import java.time.Duration;

/**
 * A wait that doubles with each failure of a key.
 *
 * @param base the first wait
 * @param max the longest wait
 */
public record ItemExponential(Duration base, Duration max) {}
