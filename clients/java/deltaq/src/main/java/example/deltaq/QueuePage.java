package example.deltaq;

import java.util.List;

/**
 * A page of the list of queues.
 *
 * @param items the queues
 * @param unavailable those that can't be read
 * @param next the token of the next page; null on the last one
 * @param resourceVersion always null, because each queue has its own
 */
@Needs("items")
public record QueuePage(List<QueueDocument> items, List<UnavailableQueue> unavailable, @Named("continue") String next, Long resourceVersion) {}
