package example.deltaq;

/** Options of {@link Queue#replace}. */
public final class ReplaceOptions {
    String source;
    Long sequence;
    boolean onlyChanged;
    Double maxDeletePercent;
    Long maxDeletes;
    boolean allowEmpty;
    boolean keepLast;
    boolean skipInvalid;
    boolean mustExist;
    boolean dryRun;
    String traceparent;

    /** The defaults. */
    public ReplaceOptions() {}

    ReplaceOptions copy() {
        ReplaceOptions copy = new ReplaceOptions();
        copy.source = source;
        copy.sequence = sequence;
        copy.onlyChanged = onlyChanged;
        copy.maxDeletePercent = maxDeletePercent;
        copy.maxDeletes = maxDeletes;
        copy.allowEmpty = allowEmpty;
        copy.keepLast = keepLast;
        copy.skipInvalid = skipInvalid;
        copy.mustExist = mustExist;
        copy.dryRun = dryRun;
        copy.traceparent = traceparent;
        return copy;
    }

    /**
     * Sets the source whose list this is.
     *
     * @param source the source whose list this is; without one, the list is that of the keys without an owner
     * @return this
     */
    public ReplaceOptions source(String source) {
        this.source = source;
        return this;
    }

    /**
     * Sets the number of the call: with a source, the server applies each number once.
     *
     * @param sequence the number of the call: with a source, the server applies each number once
     * @return this
     */
    public ReplaceOptions sequence(long sequence) {
        this.sequence = sequence;
        return this;
    }

    /**
     * Sets whether objects that are equal to the newest ones of their keys are left out.
     *
     * @param onlyChanged false by default
     * @return this
     */
    public ReplaceOptions onlyChanged(boolean onlyChanged) {
        this.onlyChanged = onlyChanged;
        return this;
    }

    /**
     * Sets the percentage of deletions.
     *
     * @param maxDeletePercent the percentage of deletions; a list is refused whose deletions exceed this and {@link #maxDeletes}
     * @return this
     */
    public ReplaceOptions maxDeletePercent(double maxDeletePercent) {
        this.maxDeletePercent = maxDeletePercent;
        return this;
    }

    /**
     * Sets the number of deletions.
     *
     * @param maxDeletes the number of deletions; a list is refused whose deletions exceed this and {@link #maxDeletePercent}
     * @return this
     */
    public ReplaceOptions maxDeletes(long maxDeletes) {
        this.maxDeletes = maxDeletes;
        return this;
    }

    /**
     * Sets whether an empty list may delete all keys of the source.
     *
     * @param allowEmpty false by default
     * @return this
     */
    public ReplaceOptions allowEmpty(boolean allowEmpty) {
        this.allowEmpty = allowEmpty;
        return this;
    }

    /**
     * Sets whether the last of several objects with the same key counts; otherwise they refuse the list.
     *
     * @param keepLast false by default
     * @return this
     */
    public ReplaceOptions keepLast(boolean keepLast) {
        this.keepLast = keepLast;
        return this;
    }

    /**
     * Sets whether invalid objects are left out, at most a tenth of the list; their keys keep what they have.
     *
     * @param skipInvalid false by default
     * @return this
     */
    public ReplaceOptions skipInvalid(boolean skipInvalid) {
        this.skipInvalid = skipInvalid;
        return this;
    }

    /**
     * Sets whether the call is refused if the queue does not exist.
     *
     * @param mustExist false by default
     * @return this
     */
    public ReplaceOptions mustExist(boolean mustExist) {
        this.mustExist = mustExist;
        return this;
    }

    /**
     * Sets whether the call returns the counts or the refusal, and changes nothing.
     *
     * @param dryRun false by default
     * @return this
     */
    public ReplaceOptions dryRun(boolean dryRun) {
        this.dryRun = dryRun;
        return this;
    }

    /**
     * Sets the trace of the call.
     *
     * @param traceparent the trace of the call
     * @return this
     */
    public ReplaceOptions traceparent(String traceparent) {
        this.traceparent = traceparent;
        return this;
    }
}
