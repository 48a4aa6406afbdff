package example.deltaq;

/** The ways to end a lease, and its extension. */
public final class SettleAs {
    /** The work is done. */
    public static final String ACK = "ack";
    /** The work is done, and failures are kept; in mode keys. */
    public static final String DONE = "done";
    /** The work has failed. */
    public static final String NACK = "nack";
    /** The key was not worked on. */
    public static final String RELEASE = "release";
    /** The key is parked. */
    public static final String REJECT = "reject";
    /** The lease goes on. */
    public static final String EXTEND = "extend";

    private SettleAs() {}
}
