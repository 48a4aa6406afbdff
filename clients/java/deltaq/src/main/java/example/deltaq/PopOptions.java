package example.deltaq;

import java.time.Duration;
import java.util.List;

/** Options of {@link Queue#pop}. */
public final class PopOptions {
    Duration wait;
    Integer max;
    Duration leaseDuration;
    String worker;
    String id;
    String group;
    boolean withKnown;
    boolean withDiff;
    List<Settle> settle = List.of();

    /** The defaults. */
    public PopOptions() {}

    PopOptions copy() {
        PopOptions copy = new PopOptions();
        copy.wait = wait;
        copy.max = max;
        copy.leaseDuration = leaseDuration;
        copy.worker = worker;
        copy.id = id;
        copy.group = group;
        copy.withKnown = withKnown;
        copy.withDiff = withDiff;
        copy.settle = settle;
        return copy;
    }

    /**
     * Sets how long to wait for a key, at most 55 s.
     *
     * @param wait how long to wait for a key, at most 55 s
     * @return this
     */
    public PopOptions wait(Duration wait) {
        this.wait = Check.notNegative("wait", wait);
        return this;
    }

    /**
     * Sets the largest number of keys, up to 1,000.
     *
     * @param max the largest number of keys, up to 1,000; one by default
     * @return this
     */
    public PopOptions max(int max) {
        this.max = Check.positive("max", max);
        return this;
    }

    /**
     * Sets the length of the leases.
     *
     * @param leaseDuration the length of the leases; by default that of the queue
     * @return this
     */
    public PopOptions leaseDuration(Duration leaseDuration) {
        this.leaseDuration = Check.notNegative("leaseDuration", leaseDuration);
        return this;
    }

    /**
     * Sets the name of the worker, shown with its leases.
     *
     * @param worker the name of the worker, shown with its leases
     * @return this
     */
    public PopOptions worker(String worker) {
        this.worker = worker;
        return this;
    }

    /**
     * Sets the id of this pop: a repeat with the same id returns the same leases.
     *
     * @param id the id of this pop: a repeat with the same id returns the same leases; a new one by default
     * @return this
     */
    public PopOptions id(String id) {
        this.id = id;
        return this;
    }

    /**
     * Sets the only group whose keys are taken.
     *
     * @param group the only group whose keys are taken; the empty name is that of the group without a name
     * @return this
     */
    public PopOptions group(String group) {
        this.group = group;
        return this;
    }

    /**
     * Sets whether each item has the object that was acknowledged last.
     *
     * @param withKnown false by default
     * @return this
     */
    public PopOptions withKnown(boolean withKnown) {
        this.withKnown = withKnown;
        return this;
    }

    /**
     * Sets whether each item has the difference from that object to the newest one.
     *
     * @param withDiff false by default
     * @return this
     */
    public PopOptions withDiff(boolean withDiff) {
        this.withDiff = withDiff;
        return this;
    }

    /**
     * Sets leases to settle before the pop.
     *
     * @param settle leases to settle before the pop
     * @return this
     */
    public PopOptions settle(List<Settle> settle) {
        this.settle = List.copyOf(settle);
        return this;
    }

    /**
     * Sets leases to settle before the pop.
     *
     * @param settle the values
     * @return this
     */
    public PopOptions settle(Settle... settle) {
        return settle(List.of(settle));
    }
}
