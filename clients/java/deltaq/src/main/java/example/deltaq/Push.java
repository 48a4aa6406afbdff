package example.deltaq;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * The endpoint that gets the keys of a queue as requests.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
 *
 * @param url its URL
 * @param format standard, raw or cloudevents
 * @param payload full, known or thin
 * @param secrets the names of the secrets that sign a request
 * @param timeout the time of a request
 * @param maxInFlight requests at once
 * @param batch keys in a request
 * @param retry the wait after each failure of a key; an empty list means the rate limiter of the queue
 * @param rejectStatuses statuses that park a key at once
 * @param disableAfter how long the endpoint may fail before the queue pauses itself
 * @param handshake the origin in whose name the server asks the endpoint before it sends keys
 * @param headers further headers of each request
 * @param async whether the receiver of a 202 settles the key later
 */
public record Push(
        String url, String format, String payload, List<String> secrets, Duration timeout, Long maxInFlight, Long batch, List<Duration> retry,
        List<Long> rejectStatuses, Duration disableAfter, String handshake, Map<String, PushHeader> headers, Boolean async) {
    /**
     * A push to an endpoint, with the defaults of the server.
     *
     * @param url its URL
     * @return the value
     */
    public static Push of(String url) {
        return new Push(url, null, null, null, null, null, null, null, null, null, null, null, null);
    }

    /**
     * The same with format.
     *
     * @param value standard, raw or cloudevents
     * @return a new value
     */
    public Push withFormat(String value) {
        return Documents.with(this, "format", value);
    }

    /**
     * The same with payload.
     *
     * @param value full, known or thin
     * @return a new value
     */
    public Push withPayload(String value) {
        return Documents.with(this, "payload", value);
    }

    /**
     * The same with secrets.
     *
     * @param value the names of the secrets that sign a request
     * @return a new value
     */
    public Push withSecrets(List<String> value) {
        return Documents.with(this, "secrets", value);
    }

    /**
     * The same with timeout.
     *
     * @param value the time of a request
     * @return a new value
     */
    public Push withTimeout(Duration value) {
        return Documents.with(this, "timeout", value);
    }

    /**
     * The same with maxInFlight.
     *
     * @param value requests at once
     * @return a new value
     */
    public Push withMaxInFlight(long value) {
        return Documents.with(this, "maxInFlight", value);
    }

    /**
     * The same with batch.
     *
     * @param value keys in a request
     * @return a new value
     */
    public Push withBatch(long value) {
        return Documents.with(this, "batch", value);
    }

    /**
     * The same with retry.
     *
     * @param value the wait after each failure of a key; an empty list means the rate limiter of the queue
     * @return a new value
     */
    public Push withRetry(List<Duration> value) {
        return Documents.with(this, "retry", value);
    }

    /**
     * The same with rejectStatuses.
     *
     * @param value statuses that park a key at once
     * @return a new value
     */
    public Push withRejectStatuses(List<Long> value) {
        return Documents.with(this, "rejectStatuses", value);
    }

    /**
     * The same with disableAfter.
     *
     * @param value how long the endpoint may fail before the queue pauses itself
     * @return a new value
     */
    public Push withDisableAfter(Duration value) {
        return Documents.with(this, "disableAfter", value);
    }

    /**
     * The same with handshake.
     *
     * @param value the origin in whose name the server asks the endpoint before it sends keys
     * @return a new value
     */
    public Push withHandshake(String value) {
        return Documents.with(this, "handshake", value);
    }

    /**
     * The same with headers.
     *
     * @param value further headers of each request
     * @return a new value
     */
    public Push withHeaders(Map<String, PushHeader> value) {
        return Documents.with(this, "headers", value);
    }

    /**
     * The same with async.
     *
     * @param value whether the receiver of a 202 settles the key later
     * @return a new value
     */
    public Push withAsync(boolean value) {
        return Documents.with(this, "async", value);
    }
}
