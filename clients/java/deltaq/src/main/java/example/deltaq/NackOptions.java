package example.deltaq;

import java.time.Duration;

/** Options of {@link Queue#nack}. */
public final class NackOptions {
    Duration delay;
    boolean floor;
    String error;

    /** The defaults. */
    public NackOptions() {}

    NackOptions copy() {
        NackOptions copy = new NackOptions();
        copy.delay = delay;
        copy.floor = floor;
        copy.error = error;
        return copy;
    }

    /**
     * Sets the wait before the keys are delivered again.
     *
     * @param delay the wait before the keys are delivered again; by default their backoff
     * @return this
     */
    public NackOptions delay(Duration delay) {
        this.delay = Check.notNegative("delay", delay);
        return this;
    }

    /**
     * Sets whether no change shortens the wait.
     *
     * @param floor false by default
     * @return this
     */
    public NackOptions floor(boolean floor) {
        this.floor = floor;
        return this;
    }

    /**
     * Sets why the work has failed.
     *
     * @param error why the work has failed
     * @return this
     */
    public NackOptions error(String error) {
        this.error = error;
        return this;
    }
}
