package example.deltaq;

import java.time.Duration;
import java.util.Map;

/** Options of an informer. */
public final class InformerOptions {
    String view = View.LATEST;
    String prefix;
    String shard;
    Map<String, Indexer> indexes = Map.of();
    Duration resync;
    Duration bookmark = Duration.ofSeconds(15);

    /** The defaults. */
    public InformerOptions() {}

    InformerOptions copy() {
        InformerOptions copy = new InformerOptions();
        copy.view = view;
        copy.prefix = prefix;
        copy.shard = shard;
        copy.indexes = indexes;
        copy.resync = resync;
        copy.bookmark = bookmark;
        return copy;
    }

    /**
     * Sets the view to keep, one of {@link View}.
     *
     * @param view the view to keep, one of {@link View}
     * @return this
     */
    public InformerOptions view(String view) {
        this.view = view;
        return this;
    }

    /**
     * Sets the prefix of the keys.
     *
     * @param prefix the prefix of the keys
     * @return this
     */
    public InformerOptions prefix(String prefix) {
        this.prefix = prefix;
        return this;
    }

    /**
     * Sets a part of all keys, such as 0/4.
     *
     * @param shard a part of all keys, such as 0/4
     * @return this
     */
    public InformerOptions shard(String shard) {
        this.shard = shard;
        return this;
    }

    /**
     * Sets the indexes of the store, by their names.
     *
     * @param indexes the indexes of the store, by their names
     * @return this
     */
    public InformerOptions indexes(Map<String, Indexer> indexes) {
        this.indexes = Map.copyOf(indexes);
        return this;
    }

    /**
     * Sets the interval at which handlers get every object again.
     *
     * @param resync the interval at which handlers get every object again; never by default
     * @return this
     */
    public InformerOptions resync(Duration resync) {
        this.resync = Check.notNegative("resync", resync);
        return this;
    }

    /**
     * Sets the interval of bookmarks.
     *
     * @param bookmark the interval of bookmarks; a stream that is silent for two and a half of them is lost
     * @return this
     */
    public InformerOptions bookmark(Duration bookmark) {
        this.bookmark = Check.notNegative("bookmark", bookmark);
        return this;
    }

    /**
     * Adds an index to the store.
     *
     * @param name its name
     * @param indexer the values of an object
     * @return this
     */
    public InformerOptions index(String name, Indexer indexer) {
        Map<String, Indexer> more = new java.util.HashMap<>(indexes);
        more.put(Check.given("name", name), Check.given("indexer", indexer));
        return indexes(more);
    }
}
