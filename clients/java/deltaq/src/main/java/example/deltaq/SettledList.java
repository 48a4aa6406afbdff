package example.deltaq;

import java.util.List;

/**
 * The results of a call that settles.
 *
 * @param settled one result for each lease, in order
 * @param stale the number of leases that had ended before
 */
@Needs("settled")
public record SettledList(List<Settled> settled, long stale) {}
