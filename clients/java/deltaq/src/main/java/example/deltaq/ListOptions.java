package example.deltaq;

/** Selects a page of a list. */
public final class ListOptions {
    Integer limit;
    String next;

    /** The defaults. */
    public ListOptions() {}

    ListOptions copy() {
        ListOptions copy = new ListOptions();
        copy.limit = limit;
        copy.next = next;
        return copy;
    }

    /**
     * Sets the size of a page, at most 5,000.
     *
     * @param limit the size of a page, at most 5,000; 500 by default
     * @return this
     */
    public ListOptions limit(int limit) {
        this.limit = limit;
        return this;
    }

    /**
     * Sets the token of a page.
     *
     * @param next the token of a page; the first one by default
     * @return this
     */
    public ListOptions next(String next) {
        this.next = next;
        return this;
    }
}
