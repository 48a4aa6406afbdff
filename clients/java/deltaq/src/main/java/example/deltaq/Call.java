package example.deltaq;

import java.util.Map;

/** A call as the middleware of a client sees it. */
public final class Call {
    private final String method;
    private final String name;
    private final String queue;
    private final Map<String, String> headers;
    final Runnable send;

    Call(String method, String name, String queue, Map<String, String> headers, Runnable send) {
        this.method = method;
        this.name = name;
        this.queue = queue;
        this.headers = headers;
        this.send = send;
    }

    /**
     * The method of HTTP.
     *
     * @return such as {@code POST}
     */
    public String method() {
        return method;
    }

    /**
     * The end of the path, such as {@code add}, {@code pop} or {@code settle}, without the name of a source or an index.
     *
     * @return the name; empty for the queue itself
     */
    public String name() {
        return name;
    }

    /**
     * The name of the queue.
     *
     * @return the name; empty for a call that concerns no queue
     */
    public String queue() {
        return queue;
    }

    /**
     * The headers of each attempt, by their names in lower case. A middleware may set others, such as a trace.
     *
     * @return a map that may be changed
     */
    public Map<String, String> headers() {
        return headers;
    }
}
