package example.deltaq;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A list that is too long to be kept. The first attempt goes on with the iterator that has shown that. Each other one reads the objects again, one attempt at a
 * time.
 */
final class ListBody {
    private static final int CHUNK = 64 << 10;

    private final Iterable<?> objects;
    private final Lines lines;
    private final ReentrantLock lock = new ReentrantLock();
    /** The rest of the list, whose beginning is in the lines; null after the first attempt. */
    private Iterator<?> begun;
    /** The attempt that reads the list; null if none does. */
    private volatile Reader reading;
    /** The error of the list itself. */
    private RuntimeException failure;
    private volatile long endedAt = Clock.FAR;

    ListBody(Iterable<?> objects, Iterator<?> begun, Lines lines) {
        this.objects = objects;
        this.begun = begun;
        this.lines = lines;
    }

    /** Begins an attempt: an earlier one reads no more. */
    void begin(Scope within) {
        end(within);
        endedAt = Clock.FAR;
    }

    InputStream open() {
        lock.lock();
        try {
            if (begun == null) {
                lines.clear();
            }
            Reader opened = new Reader(begun == null ? objects.iterator() : begun);
            begun = null;
            reading = opened;
            return opened;
        } catch (RuntimeException e) {
            failure = e;
            endedAt = Clock.now();
            return InputStream.nullInputStream();
        } finally {
            lock.unlock();
        }
    }

    /** Lets the present attempt read no more, and does not wait for an object that it reads now. */
    void leave() {
        reading = null;
    }

    /**
     * Waits until no attempt reads the list: its iterator is called by one thread at a time, and not after the end of the call.
     *
     * @throws CancelledException if the scope ends first, or the thread is interrupted
     */
    void end(Scope within) {
        try {
            while (!lock.tryLock(100, TimeUnit.MILLISECONDS)) {
                if (within.isCancelled()) {
                    throw Scope.cancelled(null);
                }
            }
        } catch (InterruptedException e) {
            throw Scope.interrupted(null);
        }
        leave();
        lock.unlock();
    }

    /** When the list was sent; far in the future before that. */
    long endedAt() {
        return endedAt;
    }

    /** Throws the error of the list, if there was one. */
    void throwFailure(Scope within) {
        end(within);
        if (failure != null) {
            throw failure;
        }
    }

    private final class Reader extends InputStream {
        private final Iterator<?> rest;
        private byte[] chunk = {};
        private int at;
        private boolean hasEnded;

        Reader(Iterator<?> rest) {
            this.rest = rest;
        }

        @Override
        public int read() throws IOException {
            byte[] one = new byte[1];
            return read(one, 0, 1) < 0 ? -1 : one[0] & 0xFF;
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
            if (at == chunk.length && !fill()) {
                return -1;
            }
            int count = Math.min(length, chunk.length - at);
            System.arraycopy(chunk, at, into, offset, count);
            at += count;
            return count;
        }

        private boolean fill() throws IOException {
            if (hasEnded) {
                return false;
            }
            lock.lock();
            try {
                try {
                    while (reading == this && lines.length() < CHUNK && rest.hasNext()) {
                        lines.add(rest.next());
                    }
                    if (reading != this) {
                        throw new IOException("the list is no longer read");
                    }
                    if (lines.length() < CHUNK) {
                        lines.end();
                        hasEnded = true;
                    }
                } catch (RuntimeException e) {
                    failure = e;
                    throw new IOException(e);
                }
                chunk = lines.take().getBytes(StandardCharsets.UTF_8);
                at = 0;
            } finally {
                if (hasEnded || failure != null) {
                    endedAt = Clock.now();
                }
                lock.unlock();
            }
            return true;
        }
    }
}
