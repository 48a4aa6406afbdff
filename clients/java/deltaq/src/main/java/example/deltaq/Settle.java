package example.deltaq;

import java.time.Duration;
import java.util.List;

/**
 * Ends or extends leases.
 *
 * @param as one of {@link SettleAs}
 * @param leaseId the lease; null with leaseIds
 * @param leaseIds the leases; null with leaseId
 * @param delay for a nack or done: the wait before the key is delivered again
 * @param floor for a nack: whether no change shortens its wait
 * @param error for a nack or a reject: why
 * @param hold for an ack or a release: a time in which nothing is delivered
 * @param through for an ack, nack or release in mode delta: the version of the newest change that is acknowledged
 * @param keep for an ack with through: whether the lease goes on with the other changes
 * @param leaseDuration for an extension: the new length
 */
public record Settle(
        String as, String leaseId, List<String> leaseIds, Duration delay, Boolean floor, String error, Hold hold, Long through, Boolean keep,
        Duration leaseDuration) {
    /**
     * Acknowledges a lease: its work is done.
     *
     * @param leaseId the lease
     * @return the entry
     */
    public static Settle ack(String leaseId) {
        return of(SettleAs.ACK, leaseId);
    }

    /**
     * Reports that the work of a lease has failed.
     *
     * @param leaseId the lease
     * @return the entry
     */
    public static Settle nack(String leaseId) {
        return of(SettleAs.NACK, leaseId);
    }

    /**
     * Returns a lease: its key was not worked on.
     *
     * @param leaseId the lease
     * @return the entry
     */
    public static Settle release(String leaseId) {
        return of(SettleAs.RELEASE, leaseId);
    }

    /**
     * Parks the key of a lease.
     *
     * @param leaseId the lease
     * @return the entry
     */
    public static Settle reject(String leaseId) {
        return of(SettleAs.REJECT, leaseId);
    }

    /**
     * Ends a lease of a queue of mode keys, and keeps the failures.
     *
     * @param leaseId the lease
     * @return the entry
     */
    public static Settle done(String leaseId) {
        return of(SettleAs.DONE, leaseId);
    }

    /**
     * Extends a lease.
     *
     * @param leaseId the lease
     * @return the entry
     */
    public static Settle extend(String leaseId) {
        return of(SettleAs.EXTEND, leaseId);
    }

    private static Settle of(String as, String leaseId) {
        return new Settle(as, leaseId, null, null, null, null, null, null, null, null);
    }

    /**
     * The same with leaseIds instead of leaseId.
     *
     * @param value the leases
     * @return a new entry
     */
    public Settle withLeaseIds(List<String> value) {
        return new Settle(as, null, value, delay, floor, error, hold, through, keep, leaseDuration);
    }

    /**
     * The same with delay.
     *
     * @param value for a nack or done: the wait before the key is delivered again
     * @return a new entry
     */
    public Settle withDelay(Duration value) {
        return Documents.with(this, "delay", value);
    }

    /**
     * The same with floor.
     *
     * @param value for a nack: whether no change shortens its wait
     * @return a new entry
     */
    public Settle withFloor(boolean value) {
        return Documents.with(this, "floor", value);
    }

    /**
     * The same with error.
     *
     * @param value for a nack or a reject: why
     * @return a new entry
     */
    public Settle withError(String value) {
        return Documents.with(this, "error", value);
    }

    /**
     * The same with hold.
     *
     * @param value for an ack or a release: a time in which nothing is delivered
     * @return a new entry
     */
    public Settle withHold(Hold value) {
        return Documents.with(this, "hold", value);
    }

    /**
     * The same with through.
     *
     * @param value for an ack, nack or release in mode delta: the version of the newest change that is acknowledged
     * @return a new entry
     */
    public Settle withThrough(long value) {
        return Documents.with(this, "through", value);
    }

    /**
     * The same with keep.
     *
     * @param value for an ack with through: whether the lease goes on with the other changes
     * @return a new entry
     */
    public Settle withKeep(boolean value) {
        return Documents.with(this, "keep", value);
    }

    /**
     * The same with leaseDuration.
     *
     * @param value for an extension: the new length
     * @return a new entry
     */
    public Settle withLeaseDuration(Duration value) {
        return Documents.with(this, "leaseDuration", value);
    }
}
