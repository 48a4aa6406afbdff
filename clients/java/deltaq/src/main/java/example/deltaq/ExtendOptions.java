package example.deltaq;

import java.time.Duration;

/** Options of {@link Queue#extend}. */
public final class ExtendOptions {
    Duration leaseDuration;
    Duration untilChanged;

    /** The defaults. */
    public ExtendOptions() {}

    ExtendOptions copy() {
        ExtendOptions copy = new ExtendOptions();
        copy.leaseDuration = leaseDuration;
        copy.untilChanged = untilChanged;
        return copy;
    }

    /**
     * Sets the new length of the leases from now on.
     *
     * @param leaseDuration the new length of the leases from now on; by default that of the queue
     * @return this
     */
    public ExtendOptions leaseDuration(Duration leaseDuration) {
        this.leaseDuration = Check.notNegative("leaseDuration", leaseDuration);
        return this;
    }

    /**
     * Sets the longest wait for a newer change of one of the keys: the reply comes at this change, when a lease ends, or after this time.
     *
     * @param untilChanged the longest wait for a newer change of one of the keys: the reply comes at this change, when a lease ends, or after this time
     * @return this
     */
    public ExtendOptions untilChanged(Duration untilChanged) {
        this.untilChanged = Check.notNegative("untilChanged", untilChanged);
        return this;
    }
}
