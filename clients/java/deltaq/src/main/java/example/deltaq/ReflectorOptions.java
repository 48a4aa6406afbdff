package example.deltaq;

import java.util.function.BiConsumer;

/** Options of a reflector. */
public final class ReflectorOptions {
    boolean onlyChanged = true;
    boolean skipInvalid = true;
    Double maxDeletePercent;
    Long maxDeletes;
    boolean allowEmpty;
    BiConsumer<Reflector.Entry, DeltaqException> onRefused;

    /** The defaults. */
    public ReflectorOptions() {}

    ReflectorOptions copy() {
        ReflectorOptions copy = new ReflectorOptions();
        copy.onlyChanged = onlyChanged;
        copy.skipInvalid = skipInvalid;
        copy.maxDeletePercent = maxDeletePercent;
        copy.maxDeletes = maxDeletes;
        copy.allowEmpty = allowEmpty;
        copy.onRefused = onRefused;
        return copy;
    }

    /**
     * Sets whether objects of a list that are equal to the newest ones of their keys are left out.
     *
     * @param onlyChanged true by default
     * @return this
     */
    public ReflectorOptions onlyChanged(boolean onlyChanged) {
        this.onlyChanged = onlyChanged;
        return this;
    }

    /**
     * Sets whether invalid objects are left out and logged; their keys keep what they have.
     *
     * @param skipInvalid true by default
     * @return this
     */
    public ReflectorOptions skipInvalid(boolean skipInvalid) {
        this.skipInvalid = skipInvalid;
        return this;
    }

    /**
     * Sets that of {@link ReplaceOptions}.
     *
     * @param maxDeletePercent that of {@link ReplaceOptions}
     * @return this
     */
    public ReflectorOptions maxDeletePercent(double maxDeletePercent) {
        this.maxDeletePercent = maxDeletePercent;
        return this;
    }

    /**
     * Sets that of {@link ReplaceOptions}.
     *
     * @param maxDeletes that of {@link ReplaceOptions}
     * @return this
     */
    public ReflectorOptions maxDeletes(long maxDeletes) {
        this.maxDeletes = maxDeletes;
        return this;
    }

    /**
     * Sets whether an empty list may delete all keys of the source.
     *
     * @param allowEmpty false by default
     * @return this
     */
    public ReflectorOptions allowEmpty(boolean allowEmpty) {
        this.allowEmpty = allowEmpty;
        return this;
    }

    /**
     * Sets what gets the entries of {@link Reflector#run} that are refused.
     *
     * @param onRefused gets the entries of {@link Reflector#run} that are refused; by default they are logged
     * @return this
     */
    public ReflectorOptions onRefused(BiConsumer<Reflector.Entry, DeltaqException> onRefused) {
        this.onRefused = onRefused;
        return this;
    }
}
