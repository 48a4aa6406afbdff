package example.deltaq;

/**
 * An object of a view with its entity tag.
 *
 * @param object the object
 * @param etag the tag, for ifMatch in a later call
 */
public record TaggedObject(QueueObject object, String etag) {}
