package example.deltaq;

import java.util.List;

/**
 * A page of a list of one queue.
 *
 * @param <T> the type of the entries
 * @param items the entries
 * @param next the token of the next page; null on the last one
 * @param resourceVersion the version of the list
 */
@Needs("items")
public record Page<T>(List<T> items, @Named("continue") String next, Long resourceVersion) {}
