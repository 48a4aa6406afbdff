package example.deltaq;

/**
 * The progress of a follower.
 *
 * @param state listing, following, blocked or waiting
 * @param resourceVersion the version that it has reached
 * @param lagEvents the events behind
 * @param lagMs the time behind
 * @param reason why it takes nothing, or null
 * @param detail the reason, for people
 */
public record FollowStatus(String state, Long resourceVersion, long lagEvents, long lagMs, String reason, String detail) {}
