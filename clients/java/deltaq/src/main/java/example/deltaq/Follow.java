package example.deltaq;

/**
 * The queue that feeds a follower.
 *
 * @param queue its name
 * @param view its view
 * @param prefix only keys with this prefix
 * @param maxWaiting how many keys may wait
 */
public record Follow(String queue, String view, String prefix, Long maxWaiting) {}
