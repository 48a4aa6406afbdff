package example.deltaq;

/** Options of {@link Queue#latestObject} and {@link Queue#knownObject}. */
public final class ObjectOptions {
    Long minResourceVersion;

    /** The defaults. */
    public ObjectOptions() {}

    ObjectOptions copy() {
        ObjectOptions copy = new ObjectOptions();
        copy.minResourceVersion = minResourceVersion;
        return copy;
    }

    /**
     * Sets the version in the reply to an earlier call.
     *
     * @param minResourceVersion the version in the reply to an earlier call; the read is refused if the queue does not have it
     * @return this
     */
    public ObjectOptions minResourceVersion(long minResourceVersion) {
        this.minResourceVersion = minResourceVersion;
        return this;
    }
}
