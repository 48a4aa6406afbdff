package example.deltaq;

import java.time.Duration;

/** Options of the calls that produce. Some belong to some calls only: the server refuses an option of another call. */
public final class ProduceOptions {
    String key;
    String source;
    Long sequence;
    Duration delay;
    Duration debounce;
    Duration maxWait;
    Duration headStart;
    boolean mustExist;
    boolean rateLimited;
    String ifMatch;
    boolean ifAbsent;
    String traceparent;

    /** The defaults. */
    public ProduceOptions() {}

    ProduceOptions copy() {
        ProduceOptions copy = new ProduceOptions();
        copy.key = key;
        copy.source = source;
        copy.sequence = sequence;
        copy.delay = delay;
        copy.debounce = debounce;
        copy.maxWait = maxWait;
        copy.headStart = headStart;
        copy.mustExist = mustExist;
        copy.rateLimited = rateLimited;
        copy.ifMatch = ifMatch;
        copy.ifAbsent = ifAbsent;
        copy.traceparent = traceparent;
        return copy;
    }

    /**
     * Sets the key of a single object that does not contain it.
     *
     * @param key the key of a single object that does not contain it
     * @return this
     */
    public ProduceOptions key(String key) {
        this.key = key;
        return this;
    }

    /**
     * Sets the producer, which becomes the owner of the keys.
     *
     * @param source the producer, which becomes the owner of the keys
     * @return this
     */
    public ProduceOptions source(String source) {
        this.source = source;
        return this;
    }

    /**
     * Sets the number of the call: with a source, the server applies each number once, however often it is repeated.
     *
     * @param sequence the number of the call: with a source, the server applies each number once, however often it is repeated
     * @return this
     */
    public ProduceOptions sequence(long sequence) {
        this.sequence = sequence;
        return this;
    }

    /**
     * Sets the time after which the keys of an add or an update become ready.
     *
     * @param delay the time after which the keys of an add or an update become ready
     * @return this
     */
    public ProduceOptions delay(Duration delay) {
        this.delay = Check.notNegative("delay", delay);
        return this;
    }

    /**
     * Sets how long the keys must be quiet before they are delivered.
     *
     * @param debounce how long the keys must be quiet before they are delivered; zero means not at all
     * @return this
     */
    public ProduceOptions debounce(Duration debounce) {
        this.debounce = Check.notNegative("debounce", debounce);
        return this;
    }

    /**
     * Sets the longest wait for that.
     *
     * @param maxWait the longest wait for that
     * @return this
     */
    public ProduceOptions maxWait(Duration maxWait) {
        this.maxWait = Check.notNegative("maxWait", maxWait);
        return this;
    }

    /**
     * Sets how much earlier than they did the changes count as arrived.
     *
     * @param headStart how much earlier than they did the changes count as arrived; it may be negative
     * @return this
     */
    public ProduceOptions headStart(Duration headStart) {
        this.headStart = headStart;
        return this;
    }

    /**
     * Sets whether the call is refused if the queue does not exist, instead of creating it.
     *
     * @param mustExist false by default
     * @return this
     */
    public ProduceOptions mustExist(boolean mustExist) {
        this.mustExist = mustExist;
        return this;
    }

    /**
     * Sets whether the key of {@link Queue#addKey} waits as after a failure, and the call counts as one.
     *
     * @param rateLimited false by default
     * @return this
     */
    public ProduceOptions rateLimited(boolean rateLimited) {
        this.rateLimited = rateLimited;
        return this;
    }

    /**
     * Sets the entity tag that the newest object must have.
     *
     * @param ifMatch the entity tag that the newest object must have
     * @return this
     */
    public ProduceOptions ifMatch(String ifMatch) {
        this.ifMatch = ifMatch;
        return this;
    }

    /**
     * Sets whether the change is refused if there is an object.
     *
     * @param ifAbsent false by default
     * @return this
     */
    public ProduceOptions ifAbsent(boolean ifAbsent) {
        this.ifAbsent = ifAbsent;
        return this;
    }

    /**
     * Sets the trace of the call, as in W3C Trace Context.
     *
     * @param traceparent the trace of the call, as in W3C Trace Context
     * @return this
     */
    public ProduceOptions traceparent(String traceparent) {
        this.traceparent = traceparent;
        return this;
    }
}
