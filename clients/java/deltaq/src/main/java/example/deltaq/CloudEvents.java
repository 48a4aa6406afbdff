package example.deltaq;

import java.util.List;

/**
 * How CloudEvents become changes.
 *
 * @param store data or event
 * @param deleted the endings of the types that delete their key
 */
public record CloudEvents(String store, List<String> deleted) {}
