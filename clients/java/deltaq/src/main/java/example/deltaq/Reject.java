package example.deltaq;

/** The work will never succeed: the key is parked, unless a newer change waits. */
public final class Reject extends Outcome {
    /**
     * A refusal.
     *
     * @param error the reason, which the queue shows; null for none
     */
    public Reject(String error) {
        super(error, null);
    }

    /**
     * A refusal.
     *
     * @param cause the reason, which the queue shows
     */
    public Reject(Throwable cause) {
        super(Outcome.text(cause), cause);
    }

    @Override
    String as() {
        return SettleAs.REJECT;
    }

    @Override
    Settle settle(String leaseId) {
        Settle settle = Settle.reject(leaseId);
        return getMessage() == null ? settle : settle.withError(Failures.bounded(getMessage()));
    }
}
