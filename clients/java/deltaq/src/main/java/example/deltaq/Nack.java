package example.deltaq;

import java.time.Duration;

/** The work has failed: the key is delivered again later. Any other exception is a Nack without options. */
public final class Nack extends Outcome {
    private final transient Duration delay;
    /** Whether no newer change shortens the wait. */
    private final boolean hasFloor;

    private Nack(String message, Throwable cause, Duration delay, boolean hasFloor) {
        super(message, cause);
        this.delay = delay;
        this.hasFloor = hasFloor;
    }

    /**
     * A failure.
     *
     * @param error the reason, which the queue shows; null for none
     */
    public Nack(String error) {
        this(error, null, null, false);
    }

    /**
     * A failure.
     *
     * @param cause the reason, which the queue shows
     */
    public Nack(Throwable cause) {
        this(Outcome.text(cause), cause, null, false);
    }

    /**
     * Sets the wait before the key is delivered again.
     *
     * @param wait the wait; zero for none
     * @return a new Nack
     */
    public Nack delay(Duration wait) {
        return new Nack(getMessage(), getCause(), Check.given("wait", wait), hasFloor);
    }

    /**
     * Lets no newer change shorten the wait.
     *
     * @return a new Nack
     */
    public Nack floor() {
        return new Nack(getMessage(), getCause(), delay, true);
    }

    @Override
    String as() {
        return SettleAs.NACK;
    }

    @Override
    Settle settle(String leaseId) {
        Settle settle = Settle.nack(leaseId);
        settle = delay == null ? settle : settle.withDelay(bounded(delay));
        settle = hasFloor ? settle.withFloor(true) : settle;
        return getMessage() == null ? settle : settle.withError(Failures.bounded(getMessage()));
    }
}
