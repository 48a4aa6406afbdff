package example.deltaq;

/**
 * Returns the token of a call. It is called for each call, and once more if the server has refused a token, so a source that remembers its token must notice
 * that the token was replaced. Several threads call it at once. An exception ends the call; workers, informers and reflectors ask again after a pause.
 */
@FunctionalInterface
public interface TokenSource {
    /**
     * The present token.
     *
     * @return the token; null or empty for none
     * @throws Exception if there is no token at present
     */
    String token() throws Exception;
}
