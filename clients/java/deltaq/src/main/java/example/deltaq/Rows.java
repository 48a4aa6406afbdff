package example.deltaq;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongSupplier;

/**
 * Logs calls that fail and are repeated: one warning at the first failure of a row, at most one a minute while the row goes on, and one line when the server
 * answers again. A row belongs to a kind of call, such as the pops of a queue, so many calls that fail at once are one row.
 */
final class Rows {
    private static final long INTERVAL = Duration.ofMinutes(1).toNanos();
    /** The number of rows that are remembered. */
    private static final int ROWS_MAX = 1000;

    private final System.Logger log;
    private final LongSupplier now;
    private final ReentrantLock lock = new ReentrantLock();
    /** The time of the last warning of each row. */
    private final Map<String, Long> warned = new HashMap<>();
    /** The number of rows, so that calls that succeed need no lock. */
    private final AtomicInteger count = new AtomicInteger();

    Rows(System.Logger log, LongSupplier now) {
        this.log = log;
        this.now = now;
    }

    /** Notes that a call has failed and is repeated. The limit says for how long; empty means without end. */
    void failed(Request call, String limit, Throwable failure) {
        String row = call.row();
        boolean isDue;
        lock.lock();
        try {
            Long last = warned.get(row);
            isDue = last == null || now.getAsLong() - last >= INTERVAL;
            if (isDue) {
                if (warned.size() >= ROWS_MAX) {
                    warned.clear();
                }
                warned.put(row, now.getAsLong());
                count.set(warned.size());
            }
        } finally {
            lock.unlock();
        }
        if (isDue) {
            log.log(System.Logger.Level.WARNING, () -> "deltaq: " + reason(failure) + "; " + row + " is repeated" + limit + ": " + failure.getMessage());
        }
    }

    /** Notes that the server has answered a call. */
    void answered(Request call) {
        if (count.get() == 0) {
            return;
        }
        String row = call.row();
        boolean wasFailing;
        lock.lock();
        try {
            wasFailing = warned.remove(row) != null;
            count.set(warned.size());
        } finally {
            lock.unlock();
        }
        if (wasFailing) {
            log.log(System.Logger.Level.INFO, () -> "deltaq: the server answers again: " + row + " has a reply");
        }
    }

    /** Says shortly why a call has failed. */
    private static String reason(Throwable failure) {
        if (failure instanceof ConnectionException connection) {
            return (connection.isSent() ? "no reply from " : "can't reach ") + connection.server();
        }
        if (failure instanceof ProblemException problem) {
            return "the server has answered " + problem.status() + " " + problem.code();
        }
        return "a call has failed";
    }
}
