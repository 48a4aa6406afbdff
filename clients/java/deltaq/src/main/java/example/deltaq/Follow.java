package example.deltaq;

/**
 * The queue that feeds a follower.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
 *
 * @param queue its name
 * @param view its view
 * @param prefix only keys with this prefix
 * @param maxWaiting how many keys may wait
 */
public record Follow(String queue, String view, String prefix, Long maxWaiting) {
    /**
     * All keys of a queue.
     *
     * @param queue its name
     * @return the value
     */
    public static Follow of(String queue) {
        return new Follow(queue, null, null, null);
    }

    /**
     * The same with view.
     *
     * @param value its view
     * @return a new value
     */
    public Follow withView(String value) {
        return Documents.with(this, "view", value);
    }

    /**
     * The same with prefix.
     *
     * @param value only keys with this prefix
     * @return a new value
     */
    public Follow withPrefix(String value) {
        return Documents.with(this, "prefix", value);
    }

    /**
     * The same with maxWaiting.
     *
     * @param value how many keys may wait
     * @return a new value
     */
    public Follow withMaxWaiting(long value) {
        return Documents.with(this, "maxWaiting", value);
    }
}
