package example.deltaq;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** A call before it is sent. */
final class Request {
    final String method;
    /** The path, which is escaped. */
    final String path;
    /** The name of the queue; empty if the call has none. */
    final String queue;
    final Map<String, String> query = new LinkedHashMap<>();
    Map<String, String> headers = new LinkedHashMap<>();
    String body;
    String contentType = "application/json";
    String accept = "application/json";
    boolean isStream;
    /** The body of a long list, instead of {@link #body}. */
    ListBody list;
    /** How long the server may wait before it replies. */
    Duration wait = Duration.ZERO;
    /** When the call has failed at the latest. */
    long deadline = Clock.FAR;
    /** Whether the call is not idempotent: it is repeated only if it was certainly not applied. */
    boolean isOnce;

    Request(String method, String path, String queue) {
        this.method = method;
        this.path = path;
        this.queue = queue;
    }

    Request with(String name, Object value) {
        if (value instanceof Duration length) {
            query.put(name, Durations.format(length));
        } else if (value != null) {
            query.put(name, value.toString());
        }
        return this;
    }

    /** Adds a text that is not empty. */
    Request withText(String name, String value) {
        return value == null || value.isEmpty() ? this : with(name, value);
    }

    Request withFlag(String name, boolean value) {
        return value ? with(name, "true") : this;
    }

    Request header(String name, String value) {
        if (value != null && !value.isEmpty()) {
            headers.put(name, value);
        }
        return this;
    }

    Request json(Object document) {
        body = Documents.write(document);
        return this;
    }

    Request waits(Duration length) {
        wait = length == null ? Duration.ZERO : length;
        return this;
    }

    Request once() {
        isOnce = true;
        return this;
    }

    /** The path and the query. */
    String target() {
        StringBuilder target = new StringBuilder(path);
        char mark = '?';
        for (Map.Entry<String, String> parameter : query.entrySet()) {
            target.append(mark).append(parameter.getKey()).append('=').append(escape(parameter.getValue()));
            mark = '&';
        }
        return target.toString();
    }

    /** The end of the path, such as {@code add}, without the name of a source or an index; empty for the queue itself. */
    String name() {
        String rest = path.startsWith("/v1/") ? path.substring(4) : path;
        if (!queue.isEmpty()) {
            String ofQueue = rest.substring("queues/".length());
            int slash = ofQueue.indexOf('/');
            if (slash < 0) {
                return "";
            }
            rest = ofQueue.substring(slash + 1);
        }
        String first = rest.split("/", 2)[0];
        // A source or an index may have the name of a call.
        return first.equals("sources") || first.equals("indexes") ? first : rest.substring(rest.lastIndexOf('/') + 1);
    }

    /** Names the calls whose failures are logged together. It has no key and no id. */
    String row() {
        String name = name().isEmpty() ? "call " + method : name();
        return queue.isEmpty() ? "the call " + name : "the " + name + " of the queue \"" + queue + "\"";
    }

    /**
     * Escapes a name for a path.
     *
     * @throws IllegalArgumentException if HTTP libraries and proxies would change the path, so that it would name something else
     */
    static String segment(String name) {
        if (name == null || name.isEmpty()) {
            throw new IllegalArgumentException("not sent: a name is empty: that of a queue, a key, a source or an index");
        }
        for (String part : name.split("/", -1)) {
            if (part.isEmpty() || part.equals(".") || part.equals("..")) {
                throw new IllegalArgumentException("\"" + name + "\" is no name: a path can't have it as a part");
            }
        }
        return escape(name);
    }

    static String escape(String text) {
        if (!Encoding.isUtf8(text)) {
            throw new EncodeException(Encoding.NO_UTF8, null);
        }
        StringBuilder escaped = new StringBuilder();
        for (byte letter : text.getBytes(StandardCharsets.UTF_8)) {
            boolean isPlain = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')
                    || letter == '-' || letter == '_' || letter == '.' || letter == '~';
            if (isPlain) {
                escaped.append((char) letter);
            } else {
                escaped.append(String.format("%%%02X", letter & 0xFF));
            }
        }
        return escaped.toString();
    }
}
