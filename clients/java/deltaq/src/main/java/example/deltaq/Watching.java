package example.deltaq;

import java.time.Duration;

/** Decides when the next watch of an informer begins. */
final class Watching {
    private final Cache cache;
    private final RetryOptions options;
    private Retry.Attempts attempts;
    private boolean hasRows;
    /** The version of the store at the end of the last watch. */
    private long version;

    Watching(Cache cache, RetryOptions options) {
        this.cache = cache;
        this.options = options;
        this.attempts = new Retry.Attempts(options, true);
    }

    /** Records that a row has arrived. */
    void received() {
        if (!hasRows) {
            hasRows = true;
            attempts.failures = 0;
        }
    }

    /** The pause before the next watch, after a failure or, if it is null, the end of a stream; null if the failure is final. */
    Duration pauseAfter(RuntimeException failure) {
        boolean hadRows = hasRows;
        hasRows = false;
        boolean hasProgress = cache.version() != version;
        if (hasProgress) {
            // Only a new version is progress. Rows alone are not, because a list may have a row that can't be read.
            version = cache.version();
            attempts = new Retry.Attempts(options, true);
        }
        if (failure == null && hadRows && hasProgress) {
            // The server ends each stream after some minutes.
            return Duration.ZERO;
        }
        if (Failures.is(failure, Codes.EXPIRED) || Failures.is(failure, Codes.QUEUE_DELETED)) {
            cache.expire();
        } else if (failure != null && !Failures.is(failure, Codes.QUEUE_NOT_FOUND)) {
            return attempts.pauseAfter(failure, false);
        }
        // The queue does not exist yet, or a stream has brought nothing new: without a pause, this would be a busy loop.
        attempts.failures++;
        return Retry.backoff(options.first, options.max, attempts.failures);
    }
}
