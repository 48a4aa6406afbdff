package example.deltaq;

import java.time.Duration;

/**
 * Numbers the calls of a source, and checks that the queue still has what was sent. A change must not go to a queue that lacks earlier changes; a list may.
 */
final class Sequence {
    /** How often a reflector checks at most that the queue still has what was sent. */
    private static final Duration CHECK_INTERVAL = Duration.ofSeconds(5);

    /** A queue, the life of its numbers, and its newest version. */
    private record Place(String incarnation, String life, long version) {}

    private final Queue queue;
    final String source;
    /** The last number of the source; null until the server was asked. */
    private Long last;
    /** The queue that has what was sent; null if it does not exist yet, or was not checked. */
    private Place place;
    private long checkAt;
    /** The version in the last reply. */
    private long version;

    Sequence(Queue queue, String source) {
        this.queue = queue;
        this.source = source;
    }

    private <T> T repeat(Request call, java.util.function.Function<Transport.Reply, T> read) {
        return queue.transport.fetchEndlessly(queue.transport.scope, call, read, queue.transport.endless());
    }

    /** Checks that the queue is still the same, unless the last check was a short time ago. */
    void check(boolean isList) {
        long now = Clock.now();
        if (place != null && now < checkAt) {
            return;
        }
        checkAt = Clock.after(now, CHECK_INTERVAL);
        Place found = null;
        try {
            QueueDocument document = repeat(queue.call("GET", ""), Client.reader(QueueDocument.class));
            found = new Place(document.incarnation(), document.life(), document.status().resourceVersion());
        } catch (ProblemException problem) {
            if (!problem.is(Codes.QUEUE_NOT_FOUND)) {
                throw problem;
            }
        }
        compare(found, isList, last);
    }

    /** The number of the next call. */
    long next() {
        if (last == null) {
            last = ask();
        }
        return last + 1;
    }

    /** Whether a call was applied. If not, another process has used its number, and it is sent again with the next one. */
    boolean applied(Produced reply, boolean isList, int failures) {
        if (reply.duplicate() && failures == 0) {
            last = null;
            return false;
        }
        last++;
        if (reply.incarnation() != null && reply.life() != null) {
            // The last number in the queue is now that of this call, so it says nothing about earlier calls.
            compare(new Place(reply.incarnation(), reply.life(), reply.resourceVersion()), isList, null);
            version = reply.resourceVersion();
        }
        return true;
    }

    /**
     * Checks that the queue has what was sent before. If a server has loaded it since, it is in another life: then it must have the version of the last
     * reply, and the number of the last call.
     */
    private void compare(Place found, boolean isList, Long number) {
        Place before = place;
        if (isList || before == null) {
            // A list is complete, so the earlier content does not matter. A queue in another life may have another last number.
            if (before != null && number != null && (found == null || !found.life.equals(before.life))) {
                last = null;
            }
            place = found;
            return;
        }
        if (found == null || !found.incarnation.equals(before.incarnation)) {
            adopt(found);
            throw new LostException(queue.name(), source, false);
        }
        boolean isKept = found.version >= version;
        if (isKept && !found.life.equals(before.life)) {
            isKept = hasVersion() && (number == null || ask() == number);
        }
        if (!isKept) {
            adopt(found);
            throw new LostException(queue.name(), source, true);
        }
        place = found;
    }

    /**
     * Forgets the last number after a call whose outcome is unknown. Otherwise the next call would have the same number, and if its first attempt got no
     * reply, the reply that the number was applied would seem to be about this call.
     */
    void forget() {
        last = null;
    }

    private void adopt(Place found) {
        place = found;
        last = null;
        version = 0;
    }

    /** Whether the queue has the version of the last reply. */
    private boolean hasVersion() {
        if (version == 0) {
            return true;
        }
        try {
            repeat(queue.call("GET", "/synced").with("resource_version", version), Client.reader(SyncedReply.class));
            return true;
        } catch (ProblemException problem) {
            // 403: the token does not permit to check.
            if (problem.is(Codes.EXPIRED) || problem.is(Codes.VERSION_AHEAD) || problem.status() == 403) {
                return false;
            }
            throw problem;
        }
    }

    /** The last number of the source that the queue has applied; 0 if there is none. */
    private long ask() {
        String token = null;
        do {
            Request call = queue.call("GET", "/sources").with("limit", 5000).withText("continue", token);
            Page<Source> page;
            try {
                page = repeat(call, reply -> reply.read(value -> Documents.readPage(value, Source.class)));
            } catch (ProblemException problem) {
                if (problem.is(Codes.QUEUE_NOT_FOUND)) {
                    return 0;
                }
                throw problem;
            }
            for (Source each : page.items()) {
                if (each.source().equals(source) && each.sequence() != null) {
                    return each.sequence();
                }
            }
            token = page.next();
        } while (token != null);
        return 0;
    }
}
