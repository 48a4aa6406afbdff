package example.deltaq;

/** A {@link TokenSource} has failed, such as one whose identity provider does not answer for a moment. */
public final class TokenException extends DeltaqException {
    TokenException(Throwable cause) {
        super("the token: " + cause.getMessage(), cause);
    }
}
