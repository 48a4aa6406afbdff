package example.deltaq;

import java.time.Duration;

/** In a queue of mode keys: the work is done, and the failures of the key are kept. It is no failure; in queues of other modes, it is one. */
public final class Done extends Outcome {
    private final transient Duration delay;

    /** The key is not added again. */
    public Done() {
        this(null);
    }

    /**
     * The key is added again.
     *
     * @param delay the time after which it is; null or zero for not at all
     */
    public Done(Duration delay) {
        super("done", null);
        this.delay = delay == null || delay.isZero() || delay.isNegative() ? null : delay;
    }

    @Override
    String as() {
        return SettleAs.DONE;
    }

    @Override
    Settle settle(String leaseId) {
        return delay == null ? Settle.done(leaseId) : Settle.done(leaseId).withDelay(bounded(delay));
    }
}
