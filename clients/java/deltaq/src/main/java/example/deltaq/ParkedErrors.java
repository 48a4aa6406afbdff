package example.deltaq;

import java.util.List;

/**
 * A page of the errors of parked keys, the most frequent ones first.
 *
 * @param items the errors
 * @param next the token of the next page; null on the last one
 * @param resourceVersion the version of the list
 * @param otherKeys the keys whose errors are on no page, because there are too many different ones
 */
@Needs("items")
public record ParkedErrors(List<ParkedError> items, @Named("continue") String next, Long resourceVersion, long otherKeys) {}
