package example.deltaq;

import java.time.Instant;

/**
 * A worker that holds leases or waits for keys.
 *
 * @param worker its name; null for all pops without one
 * @param leased the leases that it holds
 * @param oldestLeasedAt when the oldest of them began, or null
 * @param nextExpiresAt when the first of them ends, or null
 * @param nextExpiresInMs the time until then, or null
 * @param waiting its pops that wait
 * @param oldestWaitingAt when the first of them arrived, or null
 * @param recentAcks its leases that ended with an ack or a done in the last ten minutes
 * @param recentFailures its leases that ended with a nack or a reject, or that expired, in the last ten minutes
 */
public record WorkerStatus(
        String worker, long leased, Instant oldestLeasedAt, Instant nextExpiresAt, Long nextExpiresInMs, long waiting, Instant oldestWaitingAt,
        long recentAcks, long recentFailures) {}
