package example.deltaq;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/** The leases of a worker. It says when they need attention, makes no calls and has no clock. It belongs to one thread. */
final class Leases {
    /** The largest number of leases in one settle or extension. */
    static final int BATCH_MAX = 1000;
    /** The longest safety margin: a lease that could not be extended counts as lost this long before its end. */
    private static final long MARGIN_MAX = Duration.ofSeconds(5).toNanos();

    /**
     * A lease that the worker holds.
     *
     * <p>Invariant: a lease is in {@link #held} from its pop until its outcome is settled, or until it is lost.
     */
    static final class Held {
        final Job job;
        long extendAt;
        /** When the lease counts as lost, unless it is extended: some time before the server may give the key to another worker. */
        long lostAt;
        /** Whether the handler has ended. Its outcome is sent also when the lease may have ended, and the server says whether it had. */
        boolean isEnded;

        private final ReentrantLock lock = new ReentrantLock();
        private Thread thread;

        Held(Job job) {
            this.job = job;
        }

        /** Starts the time of the lease. */
        void begin(long from, long length) {
            extendAt = from + length / 3;
            lostAt = from + length - Math.min(MARGIN_MAX, length / 6);
        }

        /** Notes the thread of the handler; null when it has ended. */
        void runsIn(Thread handler) {
            lock.lock();
            try {
                thread = handler;
                if (handler != null && (job.isLeaseLost() || job.isStopping())) {
                    handler.interrupt();
                }
            } finally {
                lock.unlock();
            }
        }

        /** Interrupts the handler. */
        void end(Job.End why) {
            lock.lock();
            try {
                job.end(why);
                if (thread != null) {
                    thread.interrupt();
                }
            } finally {
                lock.unlock();
            }
        }
    }

    /** What needs attention: leases that are lost, and those to extend now, with the time that the extension may take. */
    record Attention(List<Held> lost, List<String> extend, Duration patience) {}

    final Map<String, Held> held = new HashMap<>();
    /** Whether an extension runs. There is one at a time. */
    private boolean isExtending;
    /** The time of the next extension after a failed one. */
    private long notBefore;
    /** Not later than the time at which the next lease needs attention. It is the time itself after attend. */
    long next = Clock.FAR;

    Held take(Job job, long now) {
        Held taken = new Held(job);
        taken.begin(now, Duration.ofMillis(job.lease().expiresInMs()).toNanos());
        held.put(job.lease().id(), taken);
        next = Math.min(next, taken.extendAt);
        return taken;
    }

    /** Forgets a lease that is settled or lost. */
    void remove(String leaseId) {
        held.remove(leaseId);
    }

    Attention attend(long now) {
        next = Clock.FAR;
        long firstLost = Clock.FAR;
        List<Held> lost = new ArrayList<>();
        List<String> extend = new ArrayList<>();
        for (Iterator<Map.Entry<String, Held>> entries = held.entrySet().iterator(); entries.hasNext(); ) {
            Map.Entry<String, Held> entry = entries.next();
            Held each = entry.getValue();
            if (!each.isEnded) {
                if (each.lostAt <= now) {
                    lost.add(each);
                    entries.remove();
                    continue;
                }
                firstLost = Math.min(firstLost, each.lostAt);
            }
            long due = Math.max(each.extendAt, notBefore);
            if (isExtending) {
                continue;
            }
            if (due > now) {
                next = Math.min(next, due);
            } else if (extend.size() < BATCH_MAX) {
                extend.add(entry.getKey());
            } else {
                next = now;
            }
        }
        next = Math.min(next, firstLost);
        Duration patience = Duration.ZERO;
        if (!extend.isEmpty()) {
            isExtending = true;
            // This leaves time for another attempt after one without a reply.
            long half = firstLost == Clock.FAR ? Clock.FAR : Math.max((firstLost - now) / 2, 0);
            patience = Duration.ofNanos(Math.min(half, Duration.ofSeconds(10).toNanos()));
        }
        return new Attention(lost, extend, patience);
    }

    /** Records the reply to an extension that was sent at a time. It returns the leases that are lost, which it removes. */
    List<Held> extended(SettledList list, long sentAt) {
        isExtending = false;
        notBefore = 0;
        next = 0;
        List<Held> lost = new ArrayList<>();
        for (Settled settled : list.settled()) {
            Held each = held.get(settled.leaseId());
            if (each == null) {
                continue;
            }
            if (!settled.isStale() && settled.expiresInMs() != null) {
                each.begin(sentAt, Duration.ofMillis(settled.expiresInMs()).toNanos());
                each.job.note(settled);
            } else if (each.isEnded) {
                each.extendAt = Clock.FAR;
            } else {
                lost.add(each);
                held.remove(settled.leaseId());
            }
        }
        return lost;
    }

    /** Records that an extension has failed. The next one is not sent before a time. */
    void notExtended(long time) {
        isExtending = false;
        notBefore = time;
        next = 0;
    }
}
