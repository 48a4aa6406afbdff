package example.deltaq;

import java.time.Duration;

/** Options of {@link Queue#synced}. */
public final class SyncedOptions {
    Long resourceVersion;
    boolean now;
    Duration wait;

    /** The defaults. */
    public SyncedOptions() {}

    SyncedOptions copy() {
        SyncedOptions copy = new SyncedOptions();
        copy.resourceVersion = resourceVersion;
        copy.now = now;
        copy.wait = wait;
        return copy;
    }

    /**
     * Sets the version up to which every change must be acknowledged.
     *
     * @param resourceVersion the version up to which every change must be acknowledged; by default the initial list
     * @return this
     */
    public SyncedOptions resourceVersion(long resourceVersion) {
        this.resourceVersion = resourceVersion;
        return this;
    }

    /**
     * Sets whether every change before the call must be acknowledged.
     *
     * @param now false by default
     * @return this
     */
    public SyncedOptions now(boolean now) {
        this.now = now;
        return this;
    }

    /**
     * Sets how long to wait, at most 55 s.
     *
     * @param wait how long to wait, at most 55 s
     * @return this
     */
    public SyncedOptions wait(Duration wait) {
        this.wait = Check.notNegative("wait", wait);
        return this;
    }
}
