package example.deltaq;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.concurrent.locks.ReentrantLock;

/** A list that is too long to be kept. Each attempt reads its objects again, one attempt at a time. */
final class ListBody {
    private static final int CHUNK = 64 << 10;

    private final Iterable<?> objects;
    private final Lines lines;
    private final ReentrantLock lock = new ReentrantLock();
    /** The attempt that reads the list; null if none does. */
    private Reader reading;
    /** The error of the list itself. */
    private RuntimeException failure;
    private volatile long endedAt = Clock.FAR;

    ListBody(Iterable<?> objects, Lines lines) {
        this.objects = objects;
        this.lines = lines;
    }

    /** Begins an attempt: an earlier one reads no more. */
    void begin() {
        end();
        endedAt = Clock.FAR;
    }

    InputStream open() {
        lock.lock();
        try {
            lines.clear();
            reading = new Reader(objects.iterator());
            return reading;
        } catch (RuntimeException e) {
            failure = e;
            endedAt = Clock.now();
            return InputStream.nullInputStream();
        } finally {
            lock.unlock();
        }
    }

    /** Waits until no attempt reads the list: its iterator is called by one thread at a time, and not after the end of the call. */
    void end() {
        lock.lock();
        try {
            reading = null;
        } finally {
            lock.unlock();
        }
    }

    /** When the list was sent; far in the future before that. */
    long endedAt() {
        return endedAt;
    }

    /** Throws the error of the list, if there was one. */
    void throwFailure() {
        end();
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
                if (reading != this) {
                    throw new IOException("the list is no longer read");
                }
                try {
                    while (rest.hasNext() && lines.length() < CHUNK) {
                        lines.add(rest.next());
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
