package example.deltaq;

/** The views of a queue. */
public final class View {
    /** The newest accepted object of each key. */
    public static final String LATEST = "latest";
    /** The objects that workers have acknowledged. */
    public static final String KNOWN = "known";

    private View() {}
}
