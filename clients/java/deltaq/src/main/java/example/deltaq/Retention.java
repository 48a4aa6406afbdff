package example.deltaq;

import java.time.Duration;

/**
 * How long events are kept for the history.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
 *
 * @param age the longest age
 * @param bytes the largest size
 */
public record Retention(Duration age, Long bytes) {
    /**
     * A longest age.
     *
     * @param age the longest age; null for the default
     * @return the value
     */
    public static Retention of(Duration age) {
        return new Retention(age, null);
    }

    /**
     * The same with bytes.
     *
     * @param value the largest size
     * @return a new value
     */
    public Retention withBytes(long value) {
        return Documents.with(this, "bytes", value);
    }
}
