package example.deltaq;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/**
 * The endpoint that gets the keys of a queue as requests.
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
        List<Long> rejectStatuses, Duration disableAfter, String handshake, Map<String, PushHeader> headers, Boolean async) {}
