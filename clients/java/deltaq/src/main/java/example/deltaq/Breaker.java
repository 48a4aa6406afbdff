package example.deltaq;

import java.time.Duration;
import java.util.HashSet;
import java.util.Set;

/**
 * Pauses a worker when different keys fail in a row: the target of the handlers is probably down, and the keys are fine. After a pause, the worker tries one
 * key. It has no clock, and belongs to one thread.
 *
 * <p>A nack is a failure; ack, done and reject are successes; a release is neither. Failures of one key count once.
 */
final class Breaker {
    private static final long FIRST = Duration.ofSeconds(1).toNanos();
    private static final long MAX = Duration.ofMinutes(1).toNanos();
    /** The largest number of failures in a row: their keys are remembered. */
    static final int LIMIT_MAX = 1000;

    /** What an outcome does to the worker. */
    enum Effect {
        NONE,
        BEGINS,
        GOES_ON
    }

    /** How many failures in a row pause the worker. Zero means that nothing does. */
    private final int limit;
    /** The keys that have failed since the last success. While the worker is not paused, there are fewer than the limit. */
    private final Set<String> keys = new HashSet<>();
    /** The present pause; zero while the worker is not paused. */
    private long pause;
    /** The end of the pause. Then one key is tried. */
    private long until = Clock.FAR;
    /** The lease of the key that is tried; null while none is. */
    private String probe;
    /** The failures since the last success. */
    private int failures;

    Breaker(int limit) {
        this.limit = limit;
    }

    int failures() {
        return failures;
    }

    Duration pause() {
        return Duration.ofNanos(pause);
    }

    /** Whether the worker may run at most one handler more: that of the key that is tried. */
    boolean isPaused() {
        return pause > 0;
    }

    /** Whether a handler may begin. */
    boolean mayStart(long now) {
        return !isPaused() || (probe == null && now >= until);
    }

    /** When a key may be tried; far if the worker does not wait for that time. */
    long next(long now) {
        return isPaused() && now < until ? until : Clock.FAR;
    }

    /** Notes that a handler has begun, which mayStart has allowed. */
    void started(String leaseId) {
        if (isPaused()) {
            probe = leaseId;
            until = Clock.FAR;
        }
    }

    /** Notes the outcome of a handler. A lost lease counts as a release. */
    Effect ended(long now, String leaseId, String key, String as) {
        if (limit == 0 || (isPaused() && !leaseId.equals(probe))) {
            // The handlers that began before the pause don't end it.
            return Effect.NONE;
        }
        boolean isProbe = isPaused();
        if (as.equals(SettleAs.NACK)) {
            failures++;
            keys.add(key);
            if (!isProbe && keys.size() < limit) {
                return Effect.NONE;
            }
            pauseFor(now, Math.min(Math.max(2 * pause, FIRST), MAX));
            return Effect.BEGINS;
        }
        if (as.equals(SettleAs.RELEASE)) {
            if (isProbe) {
                pauseFor(now, pause);
            }
            return Effect.NONE;
        }
        keys.clear();
        pause = 0;
        until = Clock.FAR;
        probe = null;
        failures = 0;
        return isProbe ? Effect.GOES_ON : Effect.NONE;
    }

    private void pauseFor(long now, long length) {
        keys.clear();
        pause = length;
        until = now + length;
        probe = null;
    }
}
