package example.deltaq;

import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeParseException;
import java.util.concurrent.ThreadLocalRandom;

/** Pauses between attempts. */
final class Retry {
    /** The longest pause that the client grants to a server. */
    static final Duration ASKED_MAX = Duration.ofHours(24);
    /** The longest random pause while a queue moves to another node, which takes seconds and is no overload. */
    private static final Duration MOVING_MAX = Duration.ofSeconds(1);
    /** The number of replies in a row that are JSON and can't be read, after which an endless loop ends. */
    private static final int UNREADABLE_MAX = 8;

    private Retry() {}

    /**
     * The attempts of one call. An endless loop has no limits, and goes on after defects of the server or of a proxy. The exception is JSON that can't be
     * read, which may be the same each time.
     */
    static final class Attempts {
        private final RetryOptions options;
        private final boolean isEndless;
        private final long began = Clock.now();
        int failures;
        private int unreadable;
        /** The error of the last attempt. */
        DeltaqException last;
        /** Whether an attempt may have been applied. */
        boolean isUnknown;

        Attempts(RetryOptions options, boolean isEndless) {
            this.options = options;
            this.isEndless = isEndless;
        }

        String limit() {
            return isEndless ? "" : options.limit();
        }

        /** The pause before the next attempt, or null if there is none. */
        Duration pauseAfter(Throwable failure, boolean isOnce) {
            failures++;
            unreadable = failure instanceof ReplyException reply && reply.isJson() ? unreadable + 1 : 0;
            if (isEndless) {
                if (!Failures.isTemporary(failure) || unreadable >= (options.attempts == null ? UNREADABLE_MAX : options.attempts)) {
                    return null;
                }
            } else if (!Failures.isRetryable(failure) || Failures.isCertificate(failure) || (isOnce && Failures.isOutcomeUnknown(failure))
                    || (options.attempts != null && failures >= options.attempts)) {
                return null;
            }
            boolean isMoving = Failures.is(failure, Codes.NOT_OWNER);
            Duration limit = isMoving && options.max.compareTo(MOVING_MAX) > 0 ? MOVING_MAX : options.max;
            Duration pause = backoff(options.first, limit, failures).plus(atMost(Failures.retryAfter(failure), ASKED_MAX));
            boolean isLate = Duration.ofNanos(Clock.now() - began).plus(pause).compareTo(options.total) > 0;
            return !isEndless && isLate ? null : pause;
        }
    }

    static Duration atMost(Duration length, Duration limit) {
        return length.compareTo(limit) > 0 ? limit : length;
    }

    /** A random part of {@code first * 2^(failures-1)}, or of the limit if that is less. */
    static Duration backoff(Duration first, Duration limit, int failures) {
        long longest = Math.min(Clock.nanos(limit), Clock.FAR - 1);
        int doubled = failures - 1;
        // More of them would overflow.
        if (doubled < 32 && Clock.nanos(first) <= longest >> doubled) {
            longest = Clock.nanos(first) << doubled;
        }
        return Duration.ofNanos(ThreadLocalRandom.current().nextLong(longest + 1));
    }

    /** Reads the header Retry-After: seconds, or a date. */
    static Duration readAfter(String header, Instant now) {
        String text = header == null ? "" : header.strip();
        if (text.isEmpty()) {
            return Duration.ZERO;
        }
        if (text.chars().allMatch(letter -> letter >= '0' && letter <= '9')) {
            String digits = text.replaceFirst("^0+(?=.)", "");
            return digits.length() > 9 ? ASKED_MAX : atMost(Duration.ofSeconds(Long.parseLong(digits)), ASKED_MAX);
        }
        try {
            Duration until = Duration.between(now, ZonedDateTime.parse(text, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant());
            return until.isNegative() ? Duration.ZERO : atMost(until, ASKED_MAX);
        } catch (DateTimeParseException e) {
            return Duration.ZERO;
        }
    }

    /** A number of milliseconds as a duration, without an overflow. */
    static Duration milliseconds(long number) {
        return Duration.ofMillis(Math.min(Math.max(number, 0), ASKED_MAX.toMillis()));
    }
}
