package example.deltaq;

import java.util.List;

/**
 * The first groups of a queue. The share of a group is its weight divided by the sum of the weights.
 *
 * @param groups the groups
 * @param count the number of all groups
 * @param weights the sum of their weights
 * @param resourceVersion the version of the list
 */
@Needs("groups")
public record GroupList(List<GroupStatus> groups, long count, long weights, long resourceVersion) {}
