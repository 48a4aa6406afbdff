package example.deltaq;

import java.time.Duration;

/**
 * A time in which nothing is delivered, because the target of the work asks for it.
 *
 * @param scope {@link #QUEUE}, {@link #GROUP} or {@link #KEY}
 * @param length how long; more than an hour counts as an hour
 */
public record Hold(String scope, @Named("for") Duration length) {
    /** All keys of the queue. */
    public static final String QUEUE = "queue";
    /** The keys of the group for which the lease counts. */
    public static final String GROUP = "group";
    /** The key of the lease. */
    public static final String KEY = "key";
}
