package example.deltaq;

/**
 * A call that has ended because its thread was interrupted, or because its client was closed. After an interrupt, the flag of the thread is set. The cause is
 * the failure before, if there was one.
 */
public final class CancelledException extends DeltaqException {
    CancelledException(String message, Throwable cause) {
        super(message, cause);
    }
}
