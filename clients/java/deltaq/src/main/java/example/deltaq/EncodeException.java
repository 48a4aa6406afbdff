package example.deltaq;

/** An object that can't be sent: it can't be written as JSON, or there is none. Nothing was sent. */
public final class EncodeException extends DeltaqException {
    /** What is wrong. */
    private final String reason;

    EncodeException(String reason, Throwable cause) {
        super("not sent: " + reason, cause);
        this.reason = reason;
    }

    String reason() {
        return reason;
    }
}
