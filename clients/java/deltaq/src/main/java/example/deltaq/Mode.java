package example.deltaq;

/** What a pop of a queue delivers. */
public final class Mode {
    /** All changes of a key since its last acknowledgement. */
    public static final String DELTA = "delta";
    /** The newest change of a key. */
    public static final String LATEST = "latest";
    /** The key without an object. */
    public static final String KEYS = "keys";
    /** Each change alone. */
    public static final String EVENTS = "events";

    private Mode() {}
}
