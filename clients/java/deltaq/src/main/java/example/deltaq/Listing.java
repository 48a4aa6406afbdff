package example.deltaq;

import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A list of the server. An iteration reads its pages when it needs them.
 *
 * @param <T> the type of the entries
 */
public final class Listing<T> implements Iterable<T> {
    private final Function<String, Page<T>> read;
    private final String first;

    Listing(String first, Function<String, Page<T>> read) {
        this.first = first;
        this.read = read;
    }

    /**
     * Reads the page that the options name; the first one by default.
     *
     * @return the page
     * @throws DeltaqException if the call has failed
     */
    public Page<T> page() {
        return read.apply(first);
    }

    /**
     * All entries, as a stream that reads pages when it needs them.
     *
     * @return the entries
     */
    public Stream<T> stream() {
        return StreamSupport.stream(spliterator(), false);
    }

    /**
     * All entries.
     *
     * @return the entries
     * @throws DeltaqException if a call has failed
     */
    public List<T> toList() {
        return stream().toList();
    }

    /** All entries, page by page. An iteration ends with the exception of a call that has failed. */
    @Override
    public Iterator<T> iterator() {
        return new Iterator<>() {
            private Iterator<T> page = List.<T>of().iterator();
            private String next = first;
            private boolean isLast;

            @Override
            public boolean hasNext() {
                while (!page.hasNext() && !isLast) {
                    Page<T> found = read.apply(next);
                    page = found.items().iterator();
                    next = found.next();
                    isLast = next == null;
                }
                return page.hasNext();
            }

            @Override
            public T next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                return page.next();
            }
        };
    }
}
