package example.deltaq;

import java.time.Duration;

/**
 * The wait of a key after a failure: the longest of the limiters that are not null.
 *
 * @param itemExponential a wait that doubles
 * @param itemFastSlow a short wait, then a long one
 * @param bucket a limit of all failures
 * @param maxWait the longest wait
 * @param jitter the random part
 */
public record RateLimiter(ItemExponential itemExponential, ItemFastSlow itemFastSlow, Bucket bucket, Duration maxWait, Double jitter) {}
