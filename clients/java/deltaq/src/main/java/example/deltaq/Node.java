package example.deltaq;

/**
 * A node of a cluster, as of its last heartbeat.
 *
 * @param name the name
 * @param url the URL
 * @param isThis whether it is the node that replies
 * @param state joining, serving, leaving or late
 * @param partitions its partitions
 * @param queues its queues
 * @param heartbeatAgeMs the time since its last heartbeat
 * @param clockAheadMs how far its clock is ahead of the clock of the database
 * @param details what it says of itself, or null
 */
public record Node(
        String name, String url, @Named("this") boolean isThis, String state, long partitions, long queues, long heartbeatAgeMs, long clockAheadMs,
        NodeDetails details) {}
