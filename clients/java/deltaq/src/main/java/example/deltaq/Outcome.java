package example.deltaq;

import java.time.Duration;

/** Says how the lease of a key ends, if its handler does not return. */
public abstract class Outcome extends RuntimeException {
    /** The longest delay of a key. Longer ones are cut to it, because the server would refuse the settles of other keys, too. */
    static final Duration DELAY_MAX = Duration.ofDays(366);

    Outcome(String message, Throwable cause) {
        // The stack of a choice says nothing.
        super(message, cause, false, false);
    }

    /** One of {@link SettleAs}. */
    abstract String as();

    abstract Settle settle(String leaseId);

    static Duration bounded(Duration delay) {
        return delay.isNegative() ? Duration.ZERO : Retry.atMost(delay, DELAY_MAX);
    }

    /** How the lease of a job ends after its handler has returned, for which thrown is null, or has thrown something. */
    static Settle settle(Job job, Throwable thrown) {
        String leaseId = job.lease().id();
        if (thrown == null) {
            return Settle.ack(leaseId);
        }
        Outcome chosen = in(thrown);
        if (chosen instanceof Done && !job.deltas().isEmpty()) {
            // Items of mode keys have no deltas. The server would refuse the settles of other keys in the same call, too.
            return Settle.nack(leaseId).withError("Done is only for queues of mode keys, and this queue has another mode");
        }
        return chosen != null ? chosen.settle(leaseId) : Settle.nack(leaseId).withError(text(thrown));
    }

    /**
     * The outcome that an exception is, or that is one of its causes. A middleware of a worker can tell a failure that the handler has chosen from another one.
     *
     * @param thrown what a handler has thrown; null for a return
     * @return the outcome; null if there is none
     */
    public static Outcome in(Throwable thrown) {
        Throwable next = thrown;
        for (int depth = 0; next != null && depth < 100; depth++) {
            if (next instanceof Outcome outcome) {
                return outcome;
            }
            next = cause(next);
        }
        return null;
    }

    /** The cause of an exception, whose methods an application may have made wrong. */
    static Throwable cause(Throwable thrown) {
        try {
            return thrown.getCause();
        } catch (Throwable e) {
            return null;
        }
    }

    /** The text of a failure, which an application may have made wrong. */
    static String text(Throwable thrown) {
        try {
            return Failures.bounded(Transport.unwrap(thrown).toString());
        } catch (Throwable e) {
            // Also that of a stack that overflows, or of a text that is null.
            return thrown.getClass().getName();
        }
    }
}
