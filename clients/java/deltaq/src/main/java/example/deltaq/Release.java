package example.deltaq;

import java.time.Duration;

/** The handler has not worked on its key, which is delivered again at once. It is no failure. */
public final class Release extends Outcome {
    private final transient Hold hold;

    /** Without a hold. */
    public Release() {
        this(null);
    }

    private Release(Hold hold) {
        super("release", null);
        this.hold = hold;
    }

    /**
     * With a hold: nothing of the scope is delivered for a time, because the target asks for it.
     *
     * @param scope {@link Hold#QUEUE}, {@link Hold#GROUP} or {@link Hold#KEY}
     * @param length how long; more than an hour counts as an hour
     */
    public Release(String scope, Duration length) {
        this(new Hold(Check.given("scope", scope), Check.notNegative("length", length)));
    }

    @Override
    String as() {
        return SettleAs.RELEASE;
    }

    @Override
    Settle settle(String leaseId) {
        return hold == null ? Settle.release(leaseId) : Settle.release(leaseId).withHold(hold);
    }
}
