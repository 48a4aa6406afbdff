package example.deltaq;

/**
 * An object to store as known without a change.
 *
 * @param key the key; null if the object has it
 * @param source the source that owns the key, or null
 * @param object any value that is written as a JSON object
 */
public record SeedCall(
        String key, String source, Object object) {
    /**
     * An object that contains its key.
     *
     * @param object any value that is written as a JSON object
     * @return the entry
     */
    public static SeedCall of(Object object) {
        return new SeedCall(null, null, object);
    }

    /**
     * The same with key.
     *
     * @param value the key; null if the object has it
     * @return a new entry
     */
    public SeedCall withKey(String value) {
        return Documents.with(this, "key", value);
    }

    /**
     * The same with source.
     *
     * @param value the source that owns the key, or null
     * @return a new entry
     */
    public SeedCall withSource(String value) {
        return Documents.with(this, "source", value);
    }
}
