package example.deltaq;

import java.net.http.HttpClient;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;
import javax.net.ssl.SSLContext;

/** How to reach a server. A client copies its options. */
public final class ClientOptions {
    String token;
    Path tokenFile;
    TokenSource tokenSource;
    SSLContext sslContext;
    RetryOptions retry = new RetryOptions();
    Duration replyTimeout = Duration.ofMinutes(1);
    List<UnaryOperator<Invoke>> middleware = List.of();
    System.Logger logger;
    String userAgent = "deltaq-java/" + Client.VERSION;
    HttpClient.Version httpVersion = HttpClient.Version.HTTP_1_1;
    Consumer<HttpClient.Builder> http = builder -> {};
    Json.Encoder encoder = value -> Json.Jackson.MAPPER.writeValueAsString(value);
    Json.TypeDecoder decoder = Json.JACKSON;

    /** How long a server may say nothing before it is asked whether it is alive; null for the default. Tests shorten it. */
    Duration silence;
    /** How long its answer may take; null for the default. */
    Duration answer;

    /** The defaults. */
    public ClientOptions() {}

    /**
     * Sets the token. A client has at most one of this, {@link #tokenFile} and {@link #tokenSource}.
     *
     * @param token the token; none by default
     * @return this
     */
    public ClientOptions token(String token) {
        this.token = token;
        return this;
    }

    /**
     * Sets a file with the token. It is read again when the server refuses the token, so a token can be replaced while workers and informers run.
     *
     * @param file the file
     * @return this
     */
    public ClientOptions tokenFile(Path file) {
        this.tokenFile = file;
        return this;
    }

    /**
     * Sets a function that returns the token.
     *
     * @param source the function
     * @return this
     */
    public ClientOptions tokenSource(TokenSource source) {
        this.tokenSource = source;
        return this;
    }

    /**
     * Sets how servers with https URLs are verified.
     *
     * @param context by default, the authorities of the system
     * @return this
     */
    public ClientOptions sslContext(SSLContext context) {
        this.sslContext = context;
        return this;
    }

    /**
     * Sets how failed calls are repeated.
     *
     * @param options the options, which are copied
     * @return this
     */
    public ClientOptions retry(RetryOptions options) {
        this.retry = Check.given("retry", options).copy();
        return this;
    }

    /**
     * Limits the time of one attempt, including the body of the reply, without the time for which the server was asked to wait.
     *
     * @param timeout 1 minute by default; not zero
     * @return this
     */
    public ClientOptions replyTimeout(Duration timeout) {
        if (Check.notNegative("replyTimeout", timeout).isZero()) {
            throw new IllegalArgumentException("replyTimeout is zero, so that each call would fail");
        }
        this.replyTimeout = timeout;
        return this;
    }

    /**
     * Adds a function around each call with its repeats, such as that of a trace. It takes the next one, and returns one that takes its place. The first that
     * is added is the outermost. Streams, such as a watch, have none.
     *
     * @param function the function
     * @return this
     */
    public ClientOptions middleware(UnaryOperator<Invoke> function) {
        List<UnaryOperator<Invoke>> more = new ArrayList<>(middleware);
        more.add(Check.given("middleware", function));
        middleware = List.copyOf(more);
        return this;
    }

    /**
     * Sets what gets what no caller hears of: calls that are repeated because no server answers, failures of handlers, and keys that are parked.
     *
     * @param logger by default, {@code System.getLogger("deltaq")}
     * @return this
     */
    public ClientOptions logger(System.Logger logger) {
        this.logger = logger;
        return this;
    }

    /**
     * Names the program.
     *
     * @param name by default, deltaq-java with its version
     * @return this
     */
    public ClientOptions userAgent(String name) {
        this.userAgent = Check.given("userAgent", name);
        return this;
    }

    /**
     * Sets the version of HTTP. With HTTP/2, all calls of a connection wait for one lost packet, and the server refuses pops.
     *
     * @param version HTTP/1.1 by default
     * @return this
     */
    public ClientOptions httpVersion(HttpClient.Version version) {
        this.httpVersion = Check.given("httpVersion", version);
        return this;
    }

    /**
     * Changes the HttpClient before it is built, for example to set a proxy.
     *
     * @param change gets the builder
     * @return this
     */
    public ClientOptions http(Consumer<HttpClient.Builder> change) {
        this.http = Check.given("http", change);
        return this;
    }

    /**
     * Sets how objects of the application are written as JSON, such as {@code mapper::writeValueAsString}.
     *
     * @param encoder by default Jackson
     * @return this
     */
    public ClientOptions encoder(Json.Encoder encoder) {
        this.encoder = Check.given("encoder", encoder);
        return this;
    }

    /**
     * Sets how objects that are received become values of a class, for {@link Json#as(Class)} and methods such as {@link Job#object(Class)}, such as
     * {@code mapper::readValue}.
     *
     * @param decoder by default Jackson
     * @return this
     */
    public ClientOptions decoder(Json.TypeDecoder decoder) {
        this.decoder = Check.given("decoder", decoder);
        return this;
    }
}
