package example.deltaq;

import java.time.Duration;

/** Times in nanoseconds since the first use of this class, which only grow. They are far below {@link #FAR}. */
final class Clock {
    /** A time that does not come. */
    static final long FAR = Long.MAX_VALUE;

    private static final long ORIGIN = System.nanoTime();

    private Clock() {}

    static long now() {
        return System.nanoTime() - ORIGIN;
    }

    /** A time after another one. It is FAR after a length that is too long. */
    static long after(long time, Duration length) {
        return Math.min(time, FAR - Math.max(nanos(length), 0)) + nanos(length);
    }

    /** A length, and at most the longest one that a number has. */
    static long nanos(Duration length) {
        return Retry.atMost(length, Duration.ofNanos(FAR)).toNanos();
    }

    /** The time until another one, which is not negative. */
    static Duration until(long time) {
        return Duration.ofNanos(Math.max(time - now(), 0));
    }
}
