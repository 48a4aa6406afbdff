package example.deltaq;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NavigableSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** The objects of a view, with indexes. Any thread may read it at any time; only its informer changes it. */
public final class Store {
    /** An object with its values in each index. */
    private record Entry(QueueObject object, Map<String, List<String>> values) {}

    private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    private final NavigableMap<String, Entry> objects = new TreeMap<>();
    /** Invariant: a key is in {@code indexed.get(name).get(value)} if and only if its object has this value in the index. */
    private final Map<String, NavigableMap<String, NavigableSet<String>>> indexed = new HashMap<>();
    private final Map<String, Indexer> indexers;

    Store(Map<String, Indexer> indexers) {
        this.indexers = indexers;
        indexers.keySet().forEach(name -> indexed.put(name, new TreeMap<>()));
    }

    private <T> T read(java.util.function.Supplier<T> reader) {
        lock.readLock().lock();
        try {
            return reader.get();
        } finally {
            lock.readLock().unlock();
        }
    }

    /**
     * The object of a key.
     *
     * @param key the key
     * @return the object; null if there is none
     */
    public QueueObject get(String key) {
        return read(() -> objects.containsKey(key) ? objects.get(key).object : null);
    }

    /**
     * All objects, in the order of their keys.
     *
     * @return the objects
     */
    public List<QueueObject> list() {
        return read(() -> objects.values().stream().map(Entry::object).toList());
    }

    /**
     * All keys, in their order.
     *
     * @return the keys
     */
    public List<String> keys() {
        return read(() -> List.copyOf(objects.keySet()));
    }

    /**
     * The number of objects.
     *
     * @return the number
     */
    public int size() {
        return read(objects::size);
    }

    /**
     * The objects that have a value in an index, in the order of their keys.
     *
     * @param name the index
     * @param value the value
     * @return the objects
     * @throws IllegalArgumentException if there is no such index
     */
    public List<QueueObject> byIndex(String name, String value) {
        return read(() -> index(name).getOrDefault(value, new TreeSet<>()).stream().map(key -> objects.get(key).object).toList());
    }

    /**
     * The values of an index, in their order.
     *
     * @param name the index
     * @return the values
     * @throws IllegalArgumentException if there is no such index
     */
    public List<String> indexValues(String name) {
        return read(() -> List.copyOf(index(name).keySet()));
    }

    private NavigableMap<String, NavigableSet<String>> index(String name) {
        NavigableMap<String, NavigableSet<String>> found = indexed.get(name);
        if (found == null) {
            throw new IllegalArgumentException("there is no index \"" + name + "\"");
        }
        return found;
    }

    /** Stores an object and returns the one before; null if there was none. After an exception of an index, the store is as before. */
    QueueObject put(QueueObject object) {
        Map<String, List<String>> values = new HashMap<>();
        indexers.forEach((name, indexer) -> {
            try {
                values.put(name, new ArrayList<>(indexer.values(object)));
            } catch (RuntimeException e) {
                throw new IllegalStateException("the index \"" + name + "\" of the key \"" + object.key() + "\": " + e.getMessage(), e);
            }
        });
        lock.writeLock().lock();
        try {
            QueueObject old = drop(object.key());
            objects.put(object.key(), new Entry(object, values));
            values.forEach((name, each) -> each.forEach(value -> indexed.get(name).computeIfAbsent(value, ignored -> new TreeSet<>()).add(object.key())));
            return old;
        } finally {
            lock.writeLock().unlock();
        }
    }

    /** Removes the object of a key and returns it; null if there was none. */
    QueueObject remove(String key) {
        lock.writeLock().lock();
        try {
            return drop(key);
        } finally {
            lock.writeLock().unlock();
        }
    }

    private QueueObject drop(String key) {
        Entry old = objects.remove(key);
        if (old == null) {
            return null;
        }
        old.values.forEach((name, values) -> values.forEach(value -> {
            NavigableSet<String> keys = indexed.get(name).get(value);
            if (keys != null && keys.remove(key) && keys.isEmpty()) {
                indexed.get(name).remove(value);
            }
        }));
        return old.object;
    }
}
