package example.deltaq;

/** The kinds of rows of a watch. A newer server may have more. */
public final class WatchType {
    /** A key has entered the view. */
    public static final String ADDED = "Added";
    /** A key has changed. */
    public static final String UPDATED = "Updated";
    /** A key has left the view. */
    public static final String DELETED = "Deleted";
    /** Everything up to this version was sent. */
    public static final String BOOKMARK = "Bookmark";
    /** The watch ends with a problem. */
    public static final String ERROR = "Error";
    /** The position has expired. */
    public static final String EXPIRED = "Expired";

    private WatchType() {}
}
