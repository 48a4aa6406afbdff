package example.deltaq;

import java.util.List;

/** Selects keys. */
public final class ItemsOptions {
    List<String> states = List.of();
    String worker;
    String prefix;
    String source;
    String key;
    String error;
    boolean withDiff;
    Integer limit;
    String next;

    /** The defaults. */
    public ItemsOptions() {}

    ItemsOptions copy() {
        ItemsOptions copy = new ItemsOptions();
        copy.states = states;
        copy.worker = worker;
        copy.prefix = prefix;
        copy.source = source;
        copy.key = key;
        copy.error = error;
        copy.withDiff = withDiff;
        copy.limit = limit;
        copy.next = next;
        return copy;
    }

    /**
     * Sets ready, delayed, leased and parked.
     *
     * @param states ready, delayed, leased and parked; all by default
     * @return this
     */
    public ItemsOptions states(List<String> states) {
        this.states = List.copyOf(states);
        return this;
    }

    /**
     * Sets ready, delayed, leased and parked.
     *
     * @param states the values
     * @return this
     */
    public ItemsOptions states(String... states) {
        return states(List.of(states));
    }

    /**
     * Sets the worker whose leases are selected.
     *
     * @param worker the worker whose leases are selected
     * @return this
     */
    public ItemsOptions worker(String worker) {
        this.worker = worker;
        return this;
    }

    /**
     * Sets the prefix of the keys.
     *
     * @param prefix the prefix of the keys
     * @return this
     */
    public ItemsOptions prefix(String prefix) {
        this.prefix = prefix;
        return this;
    }

    /**
     * Sets the source that owns the keys.
     *
     * @param source the source that owns the keys
     * @return this
     */
    public ItemsOptions source(String source) {
        this.source = source;
        return this;
    }

    /**
     * Sets the only key.
     *
     * @param key the only key
     * @return this
     */
    public ItemsOptions key(String key) {
        this.key = key;
        return this;
    }

    /**
     * Sets the error of the last failure.
     *
     * @param error the error of the last failure; an empty text selects keys without one
     * @return this
     */
    public ItemsOptions error(String error) {
        this.error = error;
        return this;
    }

    /**
     * Sets whether each item has its difference.
     *
     * @param withDiff false by default
     * @return this
     */
    public ItemsOptions withDiff(boolean withDiff) {
        this.withDiff = withDiff;
        return this;
    }

    /**
     * Sets the size of a page.
     *
     * @param limit the size of a page
     * @return this
     */
    public ItemsOptions limit(int limit) {
        this.limit = limit;
        return this;
    }

    /**
     * Sets the token of a page.
     *
     * @param next the token of a page
     * @return this
     */
    public ItemsOptions next(String next) {
        this.next = next;
        return this;
    }
}
