package example.deltaq;

/** Conditions of {@link Queue#putSettings}. */
public final class PutOptions {
    String ifMatch;
    boolean ifAbsent;
    boolean force;

    /** The defaults. */
    public PutOptions() {}

    PutOptions copy() {
        PutOptions copy = new PutOptions();
        copy.ifMatch = ifMatch;
        copy.ifAbsent = ifAbsent;
        copy.force = force;
        return copy;
    }

    /**
     * Sets the entity tag that the settings must have.
     *
     * @param ifMatch the entity tag that the settings must have
     * @return this
     */
    public PutOptions ifMatch(String ifMatch) {
        this.ifMatch = ifMatch;
        return this;
    }

    /**
     * Sets whether the call creates a queue, and changes none.
     *
     * @param ifAbsent false by default
     * @return this
     */
    public PutOptions ifAbsent(boolean ifAbsent) {
        this.ifAbsent = ifAbsent;
        return this;
    }

    /**
     * Sets whether followers are detached that the new settings do not allow.
     *
     * @param force false by default
     * @return this
     */
    public PutOptions force(boolean force) {
        this.force = force;
        return this;
    }
}
