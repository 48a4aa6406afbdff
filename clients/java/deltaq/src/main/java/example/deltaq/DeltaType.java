package example.deltaq;

/** The kinds of changes. A newer server may have more. */
public final class DeltaType {
    /** An object was added. */
    public static final String ADDED = "Added";
    /** An object was updated. */
    public static final String UPDATED = "Updated";
    /** A key was deleted. */
    public static final String DELETED = "Deleted";
    /** An object was in a list. */
    public static final String REPLACED = "Replaced";
    /** A known object is delivered again. */
    public static final String SYNC = "Sync";

    private DeltaType() {}
}
