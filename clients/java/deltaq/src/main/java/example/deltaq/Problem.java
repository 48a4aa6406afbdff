package example.deltaq;

import java.util.List;

/**
 * A problem document (RFC 9457) of a server. Members without a value are null.
 *
 * @param type the URL of a page that explains the problem
 * @param title the kind of the problem, for people
 * @param status the status of HTTP
 * @param detail what is wrong, and where
 * @param hint what to do
 * @param code the kind of the problem, one of {@link Codes}
 * @param retryable whether the same call may succeed later
 * @param requestId the id of the request, which is in the log of the server
 * @param retryAfterMs how long to wait before a repeat
 * @param limit the limit that is exceeded
 * @param limitMs the limit, if it is a duration
 * @param queue in the list of queues, a queue that can't be read
 * @param parameter the wrong query parameter
 * @param field the wrong field of the body
 * @param index the bad object in a list, from 0
 * @param line the bad line of a text
 * @param column the bad column of a text
 * @param pointer the location in an object
 * @param errors the places where an object violates the schema of its queue
 * @param settled the results of the settles of the call
 * @param stale the number of leases that had ended
 * @param count the number of keys that a call with an expected count selects
 * @param reason why a version is expired
 * @param acceptEncoding the encodings that the call accepts
 * @param fields the settings that a call would remove
 * @param key the key whose object is another one than expected
 * @param resourceVersion the version of its newest object
 */
public record Problem(
        String type, String title, Long status, String detail, String hint, String code, boolean retryable, String requestId, Long retryAfterMs,
        Double limit, Long limitMs, String queue, String parameter, String field, Long index, Long line, Long column, String pointer,
        List<Violation> errors, List<Settled> settled, Long stale, Long count, String reason, Json acceptEncoding, List<String> fields, String key,
        Long resourceVersion) {}
