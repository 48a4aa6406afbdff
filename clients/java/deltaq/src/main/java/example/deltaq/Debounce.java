package example.deltaq;

import java.time.Duration;

/**
 * How long a changed key waits until it is quiet.
 *
 * @param quiet how long it must be quiet
 * @param maxWait the longest wait; null for 10 times that
 * @param deletes debounced or now; null for the default
 * @param lists whether the changes of a Replace wait, too
 */
public record Debounce(Duration quiet, Duration maxWait, String deletes, Boolean lists) {}
