package example.deltaq;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Chooses the server of each call: the nodes of one cluster, any of which accepts any call. The client stays with one of them until a call fails there.
 */
final class Servers {
    /** The number of queues whose owner is remembered. */
    private static final int OWNERS_MAX = 10_000;

    /** A server of a client. */
    static final class Server {
        final String base;
        /** When the server has sent something last. */
        private volatile long heard;

        Server(String base) {
            this.base = base;
        }

        void hear() {
            heard = Clock.now();
        }

        long heard() {
            return heard;
        }
    }

    private final List<Server> all = new ArrayList<>();
    private final ReentrantLock lock = new ReentrantLock();
    /** The server for calls on queues whose owner is unknown. */
    private int present;
    /** The owners of queues, as servers have named them. Only a server of this client counts: the token goes to no other. */
    private final Map<String, Integer> owners = new HashMap<>();

    Servers(String text) {
        for (String part : text.split(",", -1)) {
            String base = read(part.strip());
            if (index(base) < 0) {
                all.add(new Server(base));
            }
        }
    }

    private int index(String base) {
        for (int index = 0; index < all.size(); index++) {
            if (all.get(index).base.equals(base)) {
                return index;
            }
        }
        return -1;
    }

    int count() {
        return all.size();
    }

    boolean areSeveral() {
        return all.size() > 1;
    }

    /** The server for the next call on a queue, or for a call on none, whose queue is empty. */
    Server next(String queue) {
        if (!areSeveral()) {
            return all.get(0);
        }
        lock.lock();
        try {
            return all.get(owners.getOrDefault(queue, present));
        } finally {
            lock.unlock();
        }
    }

    /** Records that a call has failed at a server: the next call goes to the server after it. */
    void leave(Server left, String queue) {
        if (!areSeveral()) {
            return;
        }
        lock.lock();
        try {
            owners.remove(queue);
            if (all.get(present) == left) {
                present = (present + 1) % all.size();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Records which server owns a queue, as the header deltaq-owner of a reply names it. */
    void noteOwner(String queue, String owner) {
        if (!areSeveral() || queue.isEmpty() || owner == null) {
            return;
        }
        int index;
        try {
            index = index(read(owner));
        } catch (IllegalArgumentException e) {
            index = -1;
        }
        lock.lock();
        try {
            if (owners.size() >= OWNERS_MAX) {
                owners.clear();
            }
            if (index >= 0) {
                owners.put(queue, index);
            } else {
                owners.remove(queue);
            }
        } finally {
            lock.unlock();
        }
    }

    /** A URL in the form in which equal ones are equal texts. */
    static String read(String text) {
        if (text.isEmpty()) {
            throw new IllegalArgumentException("the URL of a server is empty; it is written like http://localhost:7070");
        }
        // The URL may have a password or a token, and then the error does not show it.
        boolean isSecret = text.matches("(?s).*[@?#].*");
        IllegalArgumentException refused = new IllegalArgumentException("the URL of a server is written like http://localhost:7070, without a user; those of "
                + "several nodes have commas between them" + (isSecret ? "" : "; this one is \"" + text + "\""));
        URI read;
        try {
            read = new URI(text.contains("://") ? text : "http://" + text);
        } catch (URISyntaxException e) {
            throw refused;
        }
        String scheme = String.valueOf(read.getScheme()).toLowerCase(Locale.ROOT);
        int defaultPort = scheme.equals("http") ? 80 : 443;
        boolean isHttp = scheme.equals("http") || scheme.equals("https");
        boolean isAscii = text.chars().allMatch(letter -> letter > ' ' && letter <= '~');
        if (!isHttp || !isAscii || read.getHost() == null || read.getRawUserInfo() != null || read.getRawQuery() != null || read.getRawFragment() != null) {
            throw refused;
        }
        String port = read.getPort() < 0 || read.getPort() == defaultPort ? "" : ":" + read.getPort();
        return scheme + "://" + read.getHost().toLowerCase(Locale.ROOT) + port + read.getRawPath().replaceFirst("/+$", "");
    }
}
