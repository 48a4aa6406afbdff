package example.deltaq;

import java.util.function.Function;

/**
 * A client of one server, or of the nodes of one cluster. Any number of threads may use it at once. Programs should have one.
 *
 * <pre>{@code
 * try (Client client = new Client("http://localhost:7070")) {
 *     client.queue("prices").add(Map.of("key", "sku-1", "price", 10));
 * }
 * }</pre>
 *
 * <p>Calls block their thread, also a virtual one, and end with a {@link DeltaqException}: a {@link ProblemException} is a refusal of the server. An interrupt
 * of the thread ends a call with a {@link CancelledException}.
 */
public final class Client implements AutoCloseable {
    /** The version of this client. */
    public static final String VERSION = "0.1.0";

    final Transport transport;

    /**
     * A client of a server. Nothing is sent yet.
     *
     * @param url the URL of the server, such as {@code http://localhost:7070}. Commas separate the URLs of several nodes of one cluster: if a node can't be
     *     reached, calls go on at the next one
     */
    public Client(String url) {
        this(url, new ClientOptions());
    }

    /**
     * A client of a server. Nothing is sent yet.
     *
     * @param url the URL of the server, or several with commas between them
     * @param options the options
     */
    public Client(String url, ClientOptions options) {
        this(new Transport(url, Check.given("options", options)));
    }

    private Client(Transport transport) {
        this.transport = transport;
    }

    /**
     * A client that repeats failed calls in another way. Both have the same connections, servers and tokens, and the end of one is that of both.
     *
     * @param options how calls are repeated
     * @return the client
     */
    public Client withRetry(RetryOptions options) {
        return new Client(transport.with(Check.given("options", options)));
    }

    /** Ends all calls, workers and informers of the client, and its connections. Close workers before, so that their keys are released. */
    @Override
    public void close() {
        transport.close();
    }

    /**
     * The queue with this name. Nothing is sent.
     *
     * @param name the name
     * @return the queue
     */
    public Queue queue(String name) {
        return new Queue(this, name);
    }

    /**
     * All queues on which the token has the grant read, without those that can't be read at present, which {@link #queuesPage} names.
     *
     * @return the queues
     */
    public Listing<QueueDocument> queues() {
        return new Listing<>(null, token -> {
            QueuePage page = queuesPage(null, new ListOptions().next(token));
            return new Page<>(page.items(), page.next(), null);
        });
    }

    /**
     * A page of the list of queues.
     *
     * @param prefix the prefix of the names; null or empty for all
     * @param options the page
     * @return the page
     */
    public QueuePage queuesPage(String prefix, ListOptions options) {
        Request call = new Request("GET", "/v1/queues", "").withText("prefix", prefix).with("limit", options.limit).withText("continue", options.next);
        return document(call, QueuePage.class);
    }

    /**
     * The version, the limits and the uptime of the server.
     *
     * @return what the server says of itself
     */
    public Info info() {
        return document(new Request("GET", "/v1/info", ""), Info.class);
    }

    /**
     * The nodes that share the database of the server.
     *
     * @return the nodes
     */
    public NodeList nodes() {
        return document(new Request("GET", "/v1/nodes", ""), NodeList.class);
    }

    /**
     * The server's description of its API.
     *
     * @return an OpenAPI document
     */
    public Json openApi() {
        return transport.fetch(new Request("GET", "/openapi.json", ""), reply -> reply.read(Json::read));
    }

    /**
     * The page that explains a problem.
     *
     * @param code the code of the problem
     * @return a text for people
     */
    public String problemPage(String code) {
        return transport.fetch(new Request("GET", "/problems/" + Request.segment(code), ""), Transport.Reply::body);
    }

    /**
     * Checks that the server serves. It makes one attempt.
     *
     * @throws DeltaqException if it does not
     */
    public void alive() {
        transport.fetchOnce(transport.scope, new Request("GET", "/livez", ""), Transport.Reply::body);
    }

    /**
     * Checks that the server has loaded all queues and takes calls. It makes one attempt.
     *
     * @throws DeltaqException if it does not
     */
    public void ready() {
        transport.fetchOnce(transport.scope, new Request("GET", "/readyz", ""), Transport.Reply::body);
    }

    <T> T document(Request call, Class<T> type) {
        return transport.fetch(call, reader(type));
    }

    static <T> Function<Transport.Reply, T> reader(Class<T> type) {
        return reply -> reply.read(value -> Documents.read(value, type));
    }
}
