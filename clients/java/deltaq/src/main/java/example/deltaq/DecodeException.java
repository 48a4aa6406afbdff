package example.deltaq;

/** An object that is no value of the wanted type. */
public final class DecodeException extends DeltaqException {
    DecodeException(String message, Throwable cause) {
        super(message, cause);
    }
}
