package example.deltaq;

import java.time.Duration;

/** Selects objects of a view. */
public final class ViewOptions {
    String prefix;
    String source;
    String shard;
    String key;
    String index;
    String value;
    Duration wait;
    Integer limit;
    String next;

    /** The defaults. */
    public ViewOptions() {}

    ViewOptions copy() {
        ViewOptions copy = new ViewOptions();
        copy.prefix = prefix;
        copy.source = source;
        copy.shard = shard;
        copy.key = key;
        copy.index = index;
        copy.value = value;
        copy.wait = wait;
        copy.limit = limit;
        copy.next = next;
        return copy;
    }

    /**
     * Sets the prefix of the keys.
     *
     * @param prefix the prefix of the keys
     * @return this
     */
    public ViewOptions prefix(String prefix) {
        this.prefix = prefix;
        return this;
    }

    /**
     * Sets the source that owns the keys.
     *
     * @param source the source that owns the keys
     * @return this
     */
    public ViewOptions source(String source) {
        this.source = source;
        return this;
    }

    /**
     * Sets a part of all keys, such as 0/4.
     *
     * @param shard a part of all keys, such as 0/4
     * @return this
     */
    public ViewOptions shard(String shard) {
        this.shard = shard;
        return this;
    }

    /**
     * Sets the only key.
     *
     * @param key the only key
     * @return this
     */
    public ViewOptions key(String key) {
        this.key = key;
        return this;
    }

    /**
     * Sets the index, with {@link #value}.
     *
     * @param index the index, with {@link #value}
     * @return this
     */
    public ViewOptions index(String index) {
        this.index = index;
        return this;
    }

    /**
     * Sets the value of known objects in the index.
     *
     * @param value the value of known objects in the index
     * @return this
     */
    public ViewOptions value(String value) {
        this.value = value;
        return this;
    }

    /**
     * Sets how long to wait until the index is built, at most 10 s.
     *
     * @param wait how long to wait until the index is built, at most 10 s
     * @return this
     */
    public ViewOptions wait(Duration wait) {
        this.wait = Check.notNegative("wait", wait);
        return this;
    }

    /**
     * Sets the size of a page.
     *
     * @param limit the size of a page
     * @return this
     */
    public ViewOptions limit(int limit) {
        this.limit = limit;
        return this;
    }

    /**
     * Sets the token of a page.
     *
     * @param next the token of a page
     * @return this
     */
    public ViewOptions next(String next) {
        this.next = next;
        return this;
    }
}
