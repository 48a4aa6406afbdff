package example.deltaq;

import java.time.Instant;

/**
 * What the sender of a queue that pushes does.
 *
 * @param state sending, failing or refused
 * @param inFlight requests that run
 * @param allowedInFlight requests that may run
 * @param lastSuccessAt the last success, or null
 * @param lastError the last error, or null
 */
public record PushStatus(String state, long inFlight, long allowedInFlight, Instant lastSuccessAt, String lastError) {}
