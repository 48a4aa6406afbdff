package example.deltaq;

import java.time.Duration;

/**
 * How long a changed key waits until it is quiet.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
 *
 * @param quiet how long it must be quiet
 * @param maxWait the longest wait; null for 10 times that
 * @param deletes debounced or now; null for the default
 * @param lists whether the changes of a Replace wait, too
 */
public record Debounce(Duration quiet, Duration maxWait, String deletes, Boolean lists) {
    /**
     * A wait until a key is quiet.
     *
     * @param quiet how long it must be quiet
     * @return the value
     */
    public static Debounce of(Duration quiet) {
        return new Debounce(quiet, null, null, null);
    }

    /**
     * The same with maxWait.
     *
     * @param value the longest wait; null for 10 times that
     * @return a new value
     */
    public Debounce withMaxWait(Duration value) {
        return Documents.with(this, "maxWait", value);
    }

    /**
     * The same with deletes.
     *
     * @param value debounced or now; null for the default
     * @return a new value
     */
    public Debounce withDeletes(String value) {
        return Documents.with(this, "deletes", value);
    }

    /**
     * The same with lists.
     *
     * @param value whether the changes of a Replace wait, too
     * @return a new value
     */
    public Debounce withLists(boolean value) {
        return Documents.with(this, "lists", value);
    }
}
