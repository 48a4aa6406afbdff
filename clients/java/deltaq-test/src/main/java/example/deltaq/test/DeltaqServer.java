package example.deltaq.test;

import example.deltaq.Client;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * A real deltaq server for tests: in memory, on a free port of 127.0.0.1.
 *
 * <pre>{@code
 * try (DeltaqServer server = DeltaqServer.start(); Client client = server.client()) {
 *     client.queue("prices").add(Map.of("key", "sku-1", "price", 10));
 * }
 * }</pre>
 *
 * <p>The program is that of the variable {@code DELTAQ_BIN}, or {@code deltaq} in the {@code PATH}.
 */
public final class DeltaqServer implements AutoCloseable {
    private static final Pattern ADDRESS = Pattern.compile("\"api\"\\s*:\\s*\"([^\"]+)\"");
    private static final Duration END_MAX = Duration.ofSeconds(10);

    /** Options of a server. */
    public static final class Options {
        private String binary;
        private Path dataDir;
        private String listen = "127.0.0.1:0";
        private final Map<String, String> settings = new HashMap<>();
        private Duration ready = Duration.ofSeconds(30);

        /** The defaults. */
        public Options() {
            // The end of a server does not wait for the keys that a test has leased.
            settings.put("server.shutdown_timeout", "200ms");
        }

        /**
         * Sets the program.
         *
         * @param path by default, that of {@code DELTAQ_BIN}, or {@code deltaq} in the {@code PATH}
         * @return this
         */
        public Options binary(String path) {
            binary = path;
            return this;
        }

        /**
         * Keeps the data of the server in a folder.
         *
         * @param folder by default, the data is in memory
         * @return this
         */
        public Options dataDir(Path folder) {
            dataDir = folder;
            return this;
        }

        /**
         * Sets the address of the server.
         *
         * @param address by default, a free port of 127.0.0.1
         * @return this
         */
        public Options listen(String address) {
            listen = address;
            return this;
        }

        /**
         * Sets a setting of the server by its name in the configuration, such as {@code server.max_wait}.
         *
         * @param name the name
         * @param value the value
         * @return this
         */
        public Options setting(String name, String value) {
            settings.put(name, value);
            return this;
        }

        /**
         * Sets how long the server may take until it takes calls.
         *
         * @param patience 30 s by default
         * @return this
         */
        public Options ready(Duration patience) {
            ready = patience;
            return this;
        }
    }

    private final Process process;
    private Process guard;
    private final Path folder;
    private final ByteArrayOutputStream log = new ByteArrayOutputStream();
    private final Thread reader;
    private final String url;
    private boolean isKilled;

    private DeltaqServer(Options options) throws IOException, InterruptedException {
        folder = Files.createTempDirectory("deltaqtest-");
        Path ready = folder.resolve("ready");
        List<String> command = new ArrayList<>(List.of(options.binary != null ? options.binary : find(), "serve", "--listen", options.listen,
                "--metrics-listen", "", "--ready-file", ready.toString(), "--log-level", "warn"));
        command.addAll(options.dataDir == null ? List.of("--in-memory") : List.of("--data-dir", options.dataDir.toString()));
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        // The settings of other servers are not those of this one.
        builder.environment().keySet().removeIf(name -> name.startsWith("DELTAQ_"));
        options.settings.forEach((name, value) -> builder.environment().put("DELTAQ_" + name.toUpperCase(Locale.ROOT).replace(".", "__"), value));
        process = builder.start();
        process.getOutputStream().close();
        reader = new Thread(this::read, "deltaqtest");
        reader.setDaemon(true);
        reader.start();
        try {
            guard = guard(process.pid(), folder);
            url = "http://" + address(ready, options.ready);
        } catch (IOException | InterruptedException | RuntimeException e) {
            kill();
            throw e;
        }
    }

    /**
     * The path of the program.
     *
     * @return that of {@code DELTAQ_BIN} or, without it, of {@code deltaq} in the {@code PATH}
     * @throws IllegalStateException if there is none
     */
    public static String find() {
        String binary = System.getenv("DELTAQ_BIN");
        if (binary != null && !binary.isEmpty()) {
            return binary;
        }
        String path = System.getenv("PATH");
        for (String each : path == null ? new String[0] : path.split(File.pathSeparator)) {
            Path found = Path.of(each, "deltaq");
            if (Files.isExecutable(found) && !Files.isDirectory(found)) {
                return found.toString();
            }
        }
        throw new IllegalStateException("there is no deltaq program: install it, for example with pip install deltaq-server, and put it into the PATH, "
                + "or set DELTAQ_BIN to its path");
    }

    /**
     * Starts a server and waits until it takes calls. The caller closes it.
     *
     * @return the server
     */
    public static DeltaqServer start() {
        return start(new Options());
    }

    /**
     * Starts a server and waits until it takes calls. The caller closes it.
     *
     * @param options the options
     * @return the server
     */
    public static DeltaqServer start(Options options) {
        try {
            return new DeltaqServer(options);
        } catch (IOException e) {
            throw new UncheckedIOException("the deltaq server has not started", e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("the thread was interrupted", e);
        }
    }

    /** Ends the server, and removes its folder, when this process ends without having ended it, such as by SIGKILL. */
    private static Process guard(long pid, Path folder) throws IOException {
        if (File.separatorChar != '/') {
            return null;
        }
        String script = "read -r _; kill -s KILL $(pgrep -P \"$0\") \"$0\" 2> /dev/null; rm -r \"$1\"";
        return new ProcessBuilder("sh", "-c", script, Long.toString(pid), folder.toString()).redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
    }

    private void read() {
        try (InputStream output = process.getInputStream()) {
            byte[] part = new byte[8192];
            for (int count = output.read(part); count >= 0; count = output.read(part)) {
                log.write(part, 0, count);
            }
        } catch (IOException e) {
            // The process has ended.
        }
    }

    private String address(Path ready, Duration patience) throws IOException, InterruptedException {
        long end = System.nanoTime() + patience.toNanos();
        while (true) {
            if (Files.exists(ready)) {
                Matcher address = ADDRESS.matcher(Files.readString(ready));
                if (address.find()) {
                    return address.group(1);
                }
            }
            if (process.waitFor(10, TimeUnit.MILLISECONDS)) {
                reader.join(1_000);
                throw new IOException("the server did not start: exit status " + process.exitValue() + "\n" + log());
            }
            if (System.nanoTime() > end) {
                throw new IOException("the server is not ready after " + patience + "\n" + log());
            }
        }
    }

    /**
     * The URL of the server.
     *
     * @return the URL, for {@link Client}
     */
    public String url() {
        return url;
    }

    /**
     * A new client of the server.
     *
     * @return the client, which the caller closes
     */
    public Client client() {
        return new Client(url);
    }

    /**
     * What the server has written so far: warnings and errors.
     *
     * @return the text
     */
    public String log() {
        return log.toString(StandardCharsets.UTF_8);
    }

    /**
     * Ends the server gracefully, as a deployment does, and waits for its end. After {@link #kill}, it does nothing.
     *
     * @throws IllegalStateException if the server had ended by itself
     */
    @Override
    public void close() {
        if (isKilled) {
            return;
        }
        boolean wasRunning = process.isAlive();
        // If the program is a script that has started the server, both end.
        List<ProcessHandle> started = process.descendants().toList();
        started.forEach(ProcessHandle::destroy);
        if (started.isEmpty()) {
            process.destroy();
        }
        kill(END_MAX, started);
        if (!wasRunning) {
            throw new IllegalStateException("the server has ended with the exit status " + process.exitValue() + "\n" + log());
        }
    }

    /** Ends the server at once, as a crash does, and waits for its end. */
    public void kill() {
        kill(Duration.ZERO, process.descendants().toList());
    }

    private void kill(Duration patience, List<ProcessHandle> started) {
        isKilled = true;
        try {
            if (!process.waitFor(patience.toMillis(), TimeUnit.MILLISECONDS)) {
                started.forEach(ProcessHandle::destroyForcibly);
                process.destroyForcibly().waitFor();
            }
            reader.join(1_000);
        } catch (InterruptedException e) {
            started.forEach(ProcessHandle::destroyForcibly);
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        } finally {
            if (guard != null) {
                guard.destroyForcibly();
            }
            remove();
        }
    }

    private void remove() {
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.toList()) {
                Files.deleteIfExists(file);
            }
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            // A folder for temporary files may keep it.
        }
    }
}
