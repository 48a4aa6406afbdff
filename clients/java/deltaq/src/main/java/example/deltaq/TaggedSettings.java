package example.deltaq;

/**
 * The settings of a queue with their entity tag.
 *
 * @param settings the settings
 * @param etag the tag, for ifMatch in a later call
 */
public record TaggedSettings(QueueSettings settings, String etag) {}
