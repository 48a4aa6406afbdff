package example.deltaq;

import java.util.List;

/** A key on which a handler works, with its lease and its changes. */
public final class Job {
    /** Why the thread of a handler is interrupted. */
    enum End {
        LEASE_LOST,
        STOPPING
    }

    private final PoppedItem item;
    private final String queue;
    private volatile long pendingDeltas;
    private volatile boolean isObsolete;
    private volatile End end;

    Job(PoppedItem item, String queue) {
        this.item = item;
        this.queue = queue;
    }

    /**
     * The name of the queue.
     *
     * @return the name
     */
    public String queue() {
        return queue;
    }

    /**
     * The key with everything that the pop has returned.
     *
     * @return the item
     */
    public PoppedItem item() {
        return item;
    }

    /**
     * The key.
     *
     * @return the key
     */
    public String key() {
        return item.key();
    }

    /**
     * The lease.
     *
     * @return the lease
     */
    public Lease lease() {
        return item.lease();
    }

    /**
     * The fencing token, which grows with every lease of the queue: a store that remembers the highest token of a key can refuse a late worker.
     *
     * @return the token
     */
    public long token() {
        return item.lease().token();
    }

    /**
     * The number of deliveries since the last acknowledgement.
     *
     * @return the number
     */
    public long attempt() {
        return item.attempt();
    }

    /**
     * The changes since the last acknowledgement, oldest first.
     *
     * @return the changes
     */
    public List<Delta> deltas() {
        return item.deltas();
    }

    /**
     * The newest change.
     *
     * @return the change; null in mode keys
     */
    public Delta newest() {
        return item.newest();
    }

    /**
     * The newest object; for a deleted key its last one.
     *
     * @return the object; null in mode keys
     */
    public Json object() {
        return item.object();
    }

    /**
     * The newest object as a type of the application.
     *
     * @param type a record or class
     * @param <T> the type
     * @return the value
     * @throws DecodeException if there is no object, or it is no such value
     */
    public <T> T object(Class<T> type) {
        return item.object(type);
    }

    /**
     * Whether the newest change is a deletion.
     *
     * @return true if it is
     */
    public boolean isDeleted() {
        return item.isDeleted();
    }

    /**
     * The number of changes that have arrived during the lease, as of the last extension.
     *
     * @return the number
     */
    public long pendingDeltas() {
        return pendingDeltas;
    }

    /**
     * Whether the newest change that has arrived during the lease is a deletion, as of the last extension.
     *
     * @return true if it is
     */
    public boolean isObsolete() {
        return isObsolete;
    }

    /**
     * Whether the lease is lost: another worker may hold the key.
     *
     * @return true if the handler must write nothing more
     */
    public boolean isLeaseLost() {
        return end == End.LEASE_LOST;
    }

    /**
     * Whether the worker has stopped and no longer waits for the handler.
     *
     * @return true if the handler should end
     */
    public boolean isStopping() {
        return end == End.STOPPING;
    }

    /**
     * How the lease ends if the handler returns, or throws something.
     *
     * @param thrown what it throws; null for a return
     * @return one of {@link SettleAs}
     */
    public String outcome(Throwable thrown) {
        return Outcome.settle(this, thrown).as();
    }

    void end(End why) {
        if (end == null) {
            end = why;
        }
    }

    /** Remembers the result of an extension. */
    void note(Settled settled) {
        if (settled.pendingDeltas() != null) {
            pendingDeltas = settled.pendingDeltas();
        }
        if (settled.deleted() != null) {
            isObsolete = settled.deleted();
        }
    }
}
