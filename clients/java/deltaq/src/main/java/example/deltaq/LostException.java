package example.deltaq;

/**
 * The queue of a reflector may lack what was sent before, because it was deleted or has lost changes. The source must be listed again.
 */
public final class LostException extends DeltaqException {
    /** Why changes may be missing. */
    private final boolean isRestored;

    LostException(String queue, String source, boolean isRestored) {
        super(isRestored
                ? "the queue " + queue + " may have lost what the source " + source + " sent, so it must be listed again"
                : "the queue " + queue + " was deleted, so the source " + source + " must be listed again", null);
        this.isRestored = isRestored;
    }

    /**
     * Why changes may be missing.
     *
     * @return false if the queue was deleted, and true if it may have lost changes, for example because a backup was restored, or the token does not permit
     *     to check
     */
    public boolean isRestored() {
        return isRestored;
    }
}
