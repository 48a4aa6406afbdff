package example.deltaq;

import java.time.Duration;

/** A reply that is not from a deltaq server, such as the page of a proxy, or that can't be read. */
public final class ReplyException extends DeltaqException {
    /** The URL of the server. */
    private final String server;
    /** The status of the reply. */
    private final int status;
    /** Whether the reply is JSON of another kind. */
    private final boolean isJson;
    /** How long the server asks to wait. */
    private final Duration retryAfter;

    ReplyException(String server, int status, boolean isJson, Duration retryAfter, String reason) {
        super(reason == null
                ? "the reply of " + server + " with status " + status + " is not from deltaq: check the URL, and whether it begins with https"
                : "the reply of " + server + " with status " + status + " can't be read: " + reason, null);
        this.server = server;
        this.status = status;
        this.isJson = isJson;
        this.retryAfter = retryAfter;
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
     * The status of the reply.
     *
     * @return the status of HTTP
     */
    public int status() {
        return status;
    }

    /** Whether the reply is JSON of another kind, which may be the same each time. */
    boolean isJson() {
        return isJson;
    }

    Duration retryAfter() {
        return retryAfter;
    }

    @Override
    public boolean isRetryable() {
        return switch (status) {
            case 408, 429, 502, 503, 504 -> true;
            default -> false;
        };
    }
}
