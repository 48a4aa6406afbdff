package example.deltaq;

import java.time.Instant;

/**
 * The right to work on a key for some time.
 *
 * @param id the id, by which the lease is settled
 * @param token the fencing token, which grows with every lease of the queue
 * @param worker the name of the worker, or null
 * @param expiresAt when the lease ends, by the clock of the server
 * @param expiresInMs the time until then
 */
public record Lease(String id, long token, String worker, Instant expiresAt, long expiresInMs) {}
