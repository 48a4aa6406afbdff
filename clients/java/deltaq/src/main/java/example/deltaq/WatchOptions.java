package example.deltaq;

import java.time.Duration;

/** Selects the changes of a watch. */
public final class WatchOptions {
    String view = View.LATEST;
    long resourceVersion = 0;
    boolean now;
    String prefix;
    String shard;
    Duration bookmark = Duration.ofSeconds(15);
    Runnable opened;

    /** The defaults. */
    public WatchOptions() {}

    WatchOptions copy() {
        WatchOptions copy = new WatchOptions();
        copy.view = view;
        copy.resourceVersion = resourceVersion;
        copy.now = now;
        copy.prefix = prefix;
        copy.shard = shard;
        copy.bookmark = bookmark;
        copy.opened = opened;
        return copy;
    }

    /**
     * Sets the view to watch, one of {@link View}.
     *
     * @param view the view to watch, one of {@link View}
     * @return this
     */
    public WatchOptions view(String view) {
        this.view = view;
        return this;
    }

    /**
     * Sets the version after which the changes begin.
     *
     * @param resourceVersion the version after which the changes begin; 0 begins with all keys
     * @return this
     */
    public WatchOptions resourceVersion(long resourceVersion) {
        this.resourceVersion = resourceVersion;
        return this;
    }

    /**
     * Sets whether the watch begins with the next change.
     *
     * @param now false by default
     * @return this
     */
    public WatchOptions now(boolean now) {
        this.now = now;
        return this;
    }

    /**
     * Sets the prefix of the keys.
     *
     * @param prefix the prefix of the keys
     * @return this
     */
    public WatchOptions prefix(String prefix) {
        this.prefix = prefix;
        return this;
    }

    /**
     * Sets a part of all keys, such as 0/4.
     *
     * @param shard a part of all keys, such as 0/4
     * @return this
     */
    public WatchOptions shard(String shard) {
        this.shard = shard;
        return this;
    }

    /**
     * Sets the interval of bookmarks while nothing changes, from 1 s to 1 m.
     *
     * @param bookmark the interval of bookmarks while nothing changes, from 1 s to 1 m; a stream that is silent for two and a half of them is lost
     * @return this
     */
    public WatchOptions bookmark(Duration bookmark) {
        this.bookmark = Check.notNegative("bookmark", bookmark);
        return this;
    }

    /**
     * Sets a function that is called once the server has accepted the watch, before the first row.
     *
     * @param opened a function that is called once the server has accepted the watch, before the first row
     * @return this
     */
    public WatchOptions opened(Runnable opened) {
        this.opened = opened;
        return this;
    }
}
