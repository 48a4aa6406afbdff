package example.deltaq;

import java.time.Duration;

/**
 * An entry of a mixed batch.
 *
 * @param type Added, Updated or Deleted
 * @param key the key; null if the object has it
 * @param object any value that is written as a JSON object; null for a deletion by key
 * @param source the producer
 * @param delay the time after which the key becomes ready
 * @param debounce how long the key must be quiet
 * @param maxWait the longest wait for that
 * @param headStart how much earlier the change counts as arrived
 * @param finalStateUnknown whether the object of a deletion may be older than the last state
 * @param expectedVersion the version that the newest object of the key must have, or 0 for no object
 */
public record DeltaCall(
        String type, String key, Object object, String source, Duration delay, Duration debounce, Duration maxWait, Duration headStart, Boolean
        finalStateUnknown, Long expectedVersion) {
    /**
     * An object that was added.
     *
     * @param object any value that is written as a JSON object
     * @return the entry
     */
    public static DeltaCall added(Object object) {
        return new DeltaCall(DeltaType.ADDED, null, object, null, null, null, null, null, null, null);
    }

    /**
     * An object that was updated.
     *
     * @param object any value that is written as a JSON object
     * @return the entry
     */
    public static DeltaCall updated(Object object) {
        return new DeltaCall(DeltaType.UPDATED, null, object, null, null, null, null, null, null, null);
    }

    /**
     * A key that was deleted.
     *
     * @param key the key
     * @return the entry
     */
    public static DeltaCall deleted(String key) {
        return new DeltaCall(DeltaType.DELETED, key, null, null, null, null, null, null, null, null);
    }

    /**
     * The same with key.
     *
     * @param value the key; null if the object has it
     * @return a new entry
     */
    public DeltaCall withKey(String value) {
        return Documents.with(this, "key", value);
    }

    /**
     * The same with object.
     *
     * @param value any value that is written as a JSON object; null for a deletion by key
     * @return a new entry
     */
    public DeltaCall withObject(Object value) {
        return Documents.with(this, "object", value);
    }

    /**
     * The same with source.
     *
     * @param value the producer
     * @return a new entry
     */
    public DeltaCall withSource(String value) {
        return Documents.with(this, "source", value);
    }

    /**
     * The same with delay.
     *
     * @param value the time after which the key becomes ready
     * @return a new entry
     */
    public DeltaCall withDelay(Duration value) {
        return Documents.with(this, "delay", value);
    }

    /**
     * The same with debounce.
     *
     * @param value how long the key must be quiet
     * @return a new entry
     */
    public DeltaCall withDebounce(Duration value) {
        return Documents.with(this, "debounce", value);
    }

    /**
     * The same with maxWait.
     *
     * @param value the longest wait for that
     * @return a new entry
     */
    public DeltaCall withMaxWait(Duration value) {
        return Documents.with(this, "maxWait", value);
    }

    /**
     * The same with headStart.
     *
     * @param value how much earlier the change counts as arrived
     * @return a new entry
     */
    public DeltaCall withHeadStart(Duration value) {
        return Documents.with(this, "headStart", value);
    }

    /**
     * The same with finalStateUnknown.
     *
     * @param value whether the object of a deletion may be older than the last state
     * @return a new entry
     */
    public DeltaCall withFinalStateUnknown(boolean value) {
        return Documents.with(this, "finalStateUnknown", value);
    }

    /**
     * The same with expectedVersion.
     *
     * @param value the version that the newest object of the key must have, or 0 for no object
     * @return a new entry
     */
    public DeltaCall withExpectedVersion(long value) {
        return Documents.with(this, "expectedVersion", value);
    }
}
