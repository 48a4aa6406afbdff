package example.deltaq;

import java.time.Duration;

/**
 * How often, and for how long, a failed call is repeated. The pause before the n-th repetition is a random part of {@code first * 2^(n-1)}, or of {@code max}
 * if that is less (full jitter), in addition to the time for which the server asks.
 */
public final class RetryOptions {
    Duration first = Duration.ofMillis(250);
    Duration max = Duration.ofSeconds(10);
    Integer attempts;
    Duration total = Duration.ofMinutes(2);

    /** The defaults. */
    public RetryOptions() {}

    RetryOptions copy() {
        RetryOptions copy = new RetryOptions();
        copy.first = first;
        copy.max = max.compareTo(first) < 0 ? first : max;
        copy.attempts = attempts;
        copy.total = total;
        return copy;
    }

    /**
     * Sets the longest pause before the first repetition.
     *
     * @param first 250 ms by default
     * @return this
     */
    public RetryOptions first(Duration first) {
        this.first = Check.notNegative("first", first);
        return this;
    }

    /**
     * Sets the longest pause before any repetition.
     *
     * @param max 10 s by default
     * @return this
     */
    public RetryOptions max(Duration max) {
        this.max = Check.notNegative("max", max);
        return this;
    }

    /**
     * Limits the number of attempts, including the first.
     *
     * @param attempts at least 1; without a call, only the time limits them
     * @return this
     */
    public RetryOptions attempts(int attempts) {
        this.attempts = Check.positive("attempts", attempts);
        return this;
    }

    /**
     * Sets the time after the first attempt within which another one may begin.
     *
     * @param total 2 minutes by default
     * @return this
     */
    public RetryOptions total(Duration total) {
        this.total = Check.notNegative("total", total);
        return this;
    }

    /** For how long calls are repeated. */
    String limit() {
        return " for up to " + Durations.format(total) + (attempts == null ? "" : " and " + attempts + " attempts");
    }
}
