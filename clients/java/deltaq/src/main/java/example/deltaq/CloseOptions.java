package example.deltaq;

import java.time.Duration;

/** Options of {@link Queue#close(CloseOptions)}. */
public final class CloseOptions {
    boolean atOnce;
    boolean drain;
    Duration wait;

    /** The defaults. */
    public CloseOptions() {}

    CloseOptions copy() {
        CloseOptions copy = new CloseOptions();
        copy.atOnce = atOnce;
        copy.drain = drain;
        copy.wait = wait;
        return copy;
    }

    /**
     * Sets whether pops end as soon as no key is ready; otherwise they also wait until no key is delayed or leased.
     *
     * @param atOnce false by default
     * @return this
     */
    public CloseOptions atOnce(boolean atOnce) {
        this.atOnce = atOnce;
        return this;
    }

    /**
     * Sets whether the call waits until no key is ready, delayed or leased.
     *
     * @param drain false by default
     * @return this
     */
    public CloseOptions drain(boolean drain) {
        this.drain = drain;
        return this;
    }

    /**
     * Sets the longest wait for that.
     *
     * @param wait the longest wait for that
     * @return this
     */
    public CloseOptions wait(Duration wait) {
        this.wait = Check.notNegative("wait", wait);
        return this;
    }
}
