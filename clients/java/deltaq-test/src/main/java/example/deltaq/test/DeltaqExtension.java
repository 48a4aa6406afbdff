package example.deltaq.test;

import example.deltaq.Client;
import example.deltaq.Queue;
import java.util.concurrent.locks.ReentrantLock;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Starts a deltaq server for the tests of a class, and stops it after them. Tests take it, a client or a queue as parameters. Each test has a queue of its own.
 *
 * <pre>{@code
 * @ExtendWith(DeltaqExtension.class)
 * class PricesTest {
 *     @Test
 *     void aPriceIsQueued(Queue prices) {
 *         assertEquals(1, prices.add(Map.of("key", "sku-1", "price", 10)).queued());
 *     }
 * }
 * }</pre>
 *
 * <p>With options, register it as a static field:
 * {@code @RegisterExtension static final DeltaqExtension DELTAQ = new DeltaqExtension(options)}. If a test fails, the log of the server is in its report.
 */
public final class DeltaqExtension implements BeforeAllCallback, AfterAllCallback, AfterEachCallback, ParameterResolver {
    private final DeltaqServer.Options options;
    private final ReentrantLock lock = new ReentrantLock();
    private volatile DeltaqServer server;
    private volatile Client client;
    private int classes;

    /** A server with the default options. */
    public DeltaqExtension() {
        this(new DeltaqServer.Options());
    }

    /**
     * A server with options.
     *
     * @param options the options
     */
    public DeltaqExtension(DeltaqServer.Options options) {
        this.options = options;
    }

    /**
     * The server.
     *
     * @return the server, between the beginning and the end of the class
     */
    public DeltaqServer server() {
        if (server == null) {
            throw new IllegalStateException("the server runs between the beginning and the end of a class: the extension must be a static field");
        }
        return server;
    }

    /**
     * A client of the server, which the extension closes.
     *
     * @return the client
     */
    public Client client() {
        server();
        return client;
    }

    /** Starts the server. Nested classes have that of the outer class. */
    @Override
    public void beforeAll(ExtensionContext context) {
        lock.lock();
        try {
            if (classes++ == 0) {
                server = DeltaqServer.start(options);
                client = server.client();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Stops the server. */
    @Override
    public void afterAll(ExtensionContext context) {
        lock.lock();
        try {
            // If the server has not started, there is nothing to stop.
            if (--classes == 0 && server != null) {
                client.close();
                DeltaqServer ended = server;
                server = null;
                ended.close();
            }
        } finally {
            lock.unlock();
        }
    }

    /** Shows the log of the server if a test has failed. */
    @Override
    public void afterEach(ExtensionContext context) {
        if (context.getExecutionException().isPresent() && server != null && !server.log().isEmpty()) {
            context.publishReportEntry("the log of the deltaq server", server.log());
        }
    }

    /** Parameters may be the server, a client or a queue. */
    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return type == DeltaqServer.class || type == Client.class || type == Queue.class;
    }

    /** The server, a client, or the queue of the test. */
    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        if (type == DeltaqServer.class) {
            return server();
        }
        return type == Client.class ? client() : client().queue(queueOf(context));
    }

    /** The name of the queue of a test: that of its method, with a number that no other test has. */
    private static String queueOf(ExtensionContext context) {
        String method = context.getTestMethod().map(found -> found.getName().toLowerCase(java.util.Locale.ROOT)).orElse("test");
        String name = method.replaceAll("[^a-z0-9]", "-").replaceAll("^-+", "");
        return (name.length() > 80 ? name.substring(0, 80) : name) + "-" + Integer.toHexString(context.getUniqueId().hashCode());
    }
}
