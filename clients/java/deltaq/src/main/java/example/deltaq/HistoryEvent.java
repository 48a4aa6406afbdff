package example.deltaq;

import java.time.Instant;

/**
 * An event of a key. Which members it has depends on the event, see docs/api/reading.md.
 *
 * @param event such as appended, leased or settled
 * @param resourceVersion the number of the event
 * @param at when it happened
 * @param by the name of the token that caused it, or null
 * @param type the kind of the change
 * @param object the object
 * @param source the producer
 * @param finalStateUnknown whether the object of a deletion may be older than the last state
 * @param traceparent the trace of the call
 * @param leaseId the lease
 * @param worker the name of the worker
 * @param expiresAt the end of the lease
 * @param through the newest change that was acknowledged
 * @param outcome how the lease ended
 * @param error the error of a failure
 * @param parked whether the key was parked
 * @param dueAt when the key is due
 */
@Needs("event")
public record HistoryEvent(
        String event, long resourceVersion, Instant at, String by, String type, Json object, String source, Boolean finalStateUnknown, String
        traceparent, String leaseId, String worker, Instant expiresAt, Long through, String outcome, String error, Boolean parked, Instant dueAt) {}
