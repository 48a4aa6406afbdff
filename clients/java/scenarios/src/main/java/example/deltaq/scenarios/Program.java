package example.deltaq.scenarios;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.util.RawValue;
import example.deltaq.Client;
import example.deltaq.ClientOptions;
import example.deltaq.Durations;
import example.deltaq.Json;
import example.deltaq.Queue;
import example.deltaq.RetryOptions;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** The program of tests/clients/: it uses this client as an application would. Its settings are environment variables. */
public final class Program {
    static final ObjectMapper MAPPER = new ObjectMapper()
            .enable(com.fasterxml.jackson.databind.DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS);
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), true, StandardCharsets.UTF_8);

    private Program() {}

    /** A subcommand. */
    interface Subcommand {
        void run(Queue queue) throws Exception;
    }

    /**
     * Runs a subcommand.
     *
     * @param arguments its name
     */
    public static void main(String[] arguments) {
        Thread main = Thread.currentThread();
        Worker worker = new Worker();
        // A virtual machine that is ended by SIGTERM has the exit status 143.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (worker.isUsed()) {
                worker.close();
            } else {
                main.interrupt();
            }
            try {
                ENDED.await(10, TimeUnit.SECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            Runtime.getRuntime().halt(status);
        }));
        Subcommand subcommand = switch (arguments[0]) {
            case "worker" -> worker;
            case "produce" -> new Calls()::produce;
            case "read" -> new Calls()::read;
            case "informer" -> new Following()::inform;
            case "reflector" -> new Following()::reflect;
            default -> throw new IllegalArgumentException(arguments[0]);
        };
        try (Client client = client()) {
            subcommand.run(client.queue(System.getenv("DELTAQ_QUEUE")));
        } catch (InterruptedException e) {
            // SIGTERM has come.
            status = 0;
        } catch (Exception e) {
            System.err.println(e);
            status = 1;
        }
        ENDED.countDown();
        System.exit(status);
    }

    private static final CountDownLatch ENDED = new CountDownLatch(1);
    private static volatile int status;

    private static Client client() {
        ClientOptions options = new ClientOptions();
        if (given("DELTAQ_TOKEN") != null) {
            options.token(given("DELTAQ_TOKEN"));
        }
        if (given("DELTAQ_TOKEN_FILE") != null) {
            options.tokenFile(Path.of(given("DELTAQ_TOKEN_FILE")));
        }
        if (given("MAX_ATTEMPTS") != null) {
            options.retry(new RetryOptions().attempts(Integer.parseInt(given("MAX_ATTEMPTS"))));
        }
        return new Client(System.getenv("DELTAQ_URL"), options);
    }

    /** A setting; null if it is absent. */
    static String given(String name) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? null : value;
    }

    static Duration duration(String name) {
        return given(name) == null ? null : Durations.parse(given(name));
    }

    /** Calls a function with each command of standard input, until its end or an interrupt of the thread. */
    static void commands(Consumer<JsonNode> function) throws InterruptedException {
        var lines = new java.util.concurrent.LinkedBlockingQueue<String>();
        // A read of standard input can't be interrupted, so it has a thread that ends with the process.
        Thread reader = new Thread(() -> {
            try (var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
                input.lines().forEach(lines::add);
            } catch (IOException e) {
                System.err.println(e);
            }
            lines.add("");
        });
        reader.setDaemon(true);
        reader.start();
        while (!Thread.currentThread().isInterrupted()) {
            String line = lines.take();
            if (line.isEmpty()) {
                return;
            }
            try {
                function.accept(MAPPER.readTree(line));
            } catch (IOException e) {
                System.err.println("the command " + line + " is not JSON: " + e.getMessage());
            }
        }
    }

    static ObjectNode event(String name) {
        return MAPPER.createObjectNode().put("event", name);
    }

    /** The text of an object in a report. */
    static JsonNode raw(Json object) {
        return object == null ? MAPPER.nullNode() : MAPPER.getNodeFactory().rawValueNode(new RawValue(object.text()));
    }

    static void report(JsonNode event) {
        // One write a line, also from several threads.
        OUT.println(text(event));
    }

    static String text(Object value) {
        try {
            return MAPPER.writeValueAsString(value);
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
