package example.deltaq;

/** A call without a complete reply. */
public final class ConnectionException extends DeltaqException {
    /** The URL of the server. */
    private final String server;
    /** Whether the call may have reached the server. */
    private final boolean isSent;
    /** Whether TLS has failed. */
    private final boolean isCertificate;

    ConnectionException(String server, boolean isSent, boolean isCertificate, String message, Throwable cause) {
        super(message, cause);
        this.server = server;
        this.isSent = isSent;
        this.isCertificate = isCertificate;
    }

    /**
     * The URL of the server.
     *
     * @return the URL
     */
    public String server() {
        return server;
    }

    /**
     * Whether the call may have reached the server.
     *
     * @return false if it certainly has not, and true if its outcome is unknown
     */
    public boolean isSent() {
        return isSent;
    }

    /** Whether TLS has failed, such as at a certificate that is not trusted. Another attempt would fail, too. */
    boolean isCertificate() {
        return isCertificate;
    }

    @Override
    public boolean isRetryable() {
        return true;
    }
}
