package example.deltaq;

/**
 * An object of a view.
 *
 * @param key the key
 * @param source the source that owns the key, or null
 * @param resourceVersion the number of the event that last changed the key in the view
 * @param object the object as it was sent
 */
@Needs("key")
public record QueueObject(String key, String source, long resourceVersion, Json object) {
    /**
     * The object as a type of the application, by {@link Json#as(Class)}.
     *
     * @param type a record or class
     * @param <T> the type
     * @return the value
     * @throws DecodeException if the object is no such value
     */
    public <T> T object(Class<T> type) {
        return object.as(type);
    }
}
