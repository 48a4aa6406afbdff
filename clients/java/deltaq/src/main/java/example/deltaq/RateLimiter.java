package example.deltaq;

import java.time.Duration;

/**
 * The wait of a key after a failure: the longest of the limiters that are not null.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
 *
 * @param itemExponential a wait that doubles
 * @param itemFastSlow a short wait, then a long one
 * @param bucket a limit of all failures
 * @param maxWait the longest wait
 * @param jitter the random part
 */
public record RateLimiter(ItemExponential itemExponential, ItemFastSlow itemFastSlow, Bucket bucket, Duration maxWait, Double jitter) {
    /**
     * A rate limiter of which nothing is given.
     *
     * @return the value
     */
    public static RateLimiter of() {
        return new RateLimiter(null, null, null, null, null);
    }

    /**
     * The same with itemExponential.
     *
     * @param value a wait that doubles
     * @return a new value
     */
    public RateLimiter withItemExponential(ItemExponential value) {
        return Documents.with(this, "itemExponential", value);
    }

    /**
     * The same with itemFastSlow.
     *
     * @param value a short wait, then a long one
     * @return a new value
     */
    public RateLimiter withItemFastSlow(ItemFastSlow value) {
        return Documents.with(this, "itemFastSlow", value);
    }

    /**
     * The same with bucket.
     *
     * @param value a limit of all failures
     * @return a new value
     */
    public RateLimiter withBucket(Bucket value) {
        return Documents.with(this, "bucket", value);
    }

    /**
     * The same with maxWait.
     *
     * @param value the longest wait
     * @return a new value
     */
    public RateLimiter withMaxWait(Duration value) {
        return Documents.with(this, "maxWait", value);
    }

    /**
     * The same with jitter.
     *
     * @param value the random part
     * @return a new value
     */
    public RateLimiter withJitter(double value) {
        return Documents.with(this, "jitter", value);
    }
}
