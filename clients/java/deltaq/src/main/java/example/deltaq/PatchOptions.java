package example.deltaq;

import java.util.List;

/** Conditions of {@link Queue#patchSettings}. */
public final class PatchOptions {
    List<String> reset = List.of();
    String ifMatch;
    boolean force;

    /** The defaults. */
    public PatchOptions() {}

    PatchOptions copy() {
        PatchOptions copy = new PatchOptions();
        copy.reset = reset;
        copy.ifMatch = ifMatch;
        copy.force = force;
        return copy;
    }

    /**
     * Sets the settings, such as lease, that get their default.
     *
     * @param reset the settings, such as lease, that get their default
     * @return this
     */
    public PatchOptions reset(List<String> reset) {
        this.reset = List.copyOf(reset);
        return this;
    }

    /**
     * Sets the settings, such as lease, that get their default.
     *
     * @param reset the values
     * @return this
     */
    public PatchOptions reset(String... reset) {
        return reset(List.of(reset));
    }

    /**
     * Sets the entity tag that the settings must have.
     *
     * @param ifMatch the entity tag that the settings must have
     * @return this
     */
    public PatchOptions ifMatch(String ifMatch) {
        this.ifMatch = ifMatch;
        return this;
    }

    /**
     * Sets whether followers are detached that the new settings do not allow.
     *
     * @param force false by default
     * @return this
     */
    public PatchOptions force(boolean force) {
        this.force = force;
        return this;
    }
}
