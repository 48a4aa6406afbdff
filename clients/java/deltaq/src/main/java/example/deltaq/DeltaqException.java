package example.deltaq;

/** The error of a call. The subclasses say what kind it is. */
public abstract class DeltaqException extends RuntimeException {
    /**
     * An error.
     *
     * @param message what has happened
     * @param cause the cause, or null
     */
    protected DeltaqException(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Whether the same call may succeed later.
     *
     * @return true if it may
     */
    public boolean isRetryable() {
        return false;
    }
}
