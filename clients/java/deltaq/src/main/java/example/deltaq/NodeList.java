package example.deltaq;

import java.util.List;

/**
 * The nodes that share a database; none for a single server.
 *
 * @param nodes the nodes
 * @param partitions the number of partitions
 * @param withoutOwner those that no node owns
 * @param self the process that replies
 */
@Needs("nodes")
public record NodeList(List<Node> nodes, long partitions, long withoutOwner, @Named("this") NodeDetails self) {}
