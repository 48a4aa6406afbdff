package example.deltaq;

/** Options of {@link Queue#deltas}. */
public final class DeltasOptions {
    String source;
    Long sequence;
    boolean skipInvalid;
    boolean mustExist;
    String traceparent;

    /** The defaults. */
    public DeltasOptions() {}

    DeltasOptions copy() {
        DeltasOptions copy = new DeltasOptions();
        copy.source = source;
        copy.sequence = sequence;
        copy.skipInvalid = skipInvalid;
        copy.mustExist = mustExist;
        copy.traceparent = traceparent;
        return copy;
    }

    /**
     * Sets the producer of the entries without one.
     *
     * @param source the producer of the entries without one
     * @return this
     */
    public DeltasOptions source(String source) {
        this.source = source;
        return this;
    }

    /**
     * Sets the number of the call: with a source, the server applies each number once.
     *
     * @param sequence the number of the call: with a source, the server applies each number once
     * @return this
     */
    public DeltasOptions sequence(long sequence) {
        this.sequence = sequence;
        return this;
    }

    /**
     * Sets whether entries with an invalid object are left out, and the others applied.
     *
     * @param skipInvalid false by default
     * @return this
     */
    public DeltasOptions skipInvalid(boolean skipInvalid) {
        this.skipInvalid = skipInvalid;
        return this;
    }

    /**
     * Sets whether the call is refused if the queue does not exist.
     *
     * @param mustExist false by default
     * @return this
     */
    public DeltasOptions mustExist(boolean mustExist) {
        this.mustExist = mustExist;
        return this;
    }

    /**
     * Sets the trace of the call.
     *
     * @param traceparent the trace of the call
     * @return this
     */
    public DeltasOptions traceparent(String traceparent) {
        this.traceparent = traceparent;
        return this;
    }
}
