package example.deltaq;

import java.util.List;

/**
 * A node of a cluster.
 *
 * @param name the name
 * @param partitions the number of partitions
 * @param owned those that it owns
 */
public record InfoNode(String name, long partitions, List<Long> owned) {}
