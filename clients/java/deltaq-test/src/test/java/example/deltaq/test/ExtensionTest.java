package example.deltaq.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.deltaq.Client;
import example.deltaq.ClientOptions;
import example.deltaq.ConnectionException;
import example.deltaq.Queue;
import example.deltaq.RetryOptions;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

@ExtendWith(DeltaqExtension.class)
class ExtensionTest {
    @Test
    void testsHaveQueuesOfTheirOwn(Queue prices, Client client, DeltaqServer server) {
        assertEquals(1, prices.add(Map.of("key", "sku-1", "price", 10)).queued());
        assertEquals(1, client.queue(prices.name()).status().ready());
        assertTrue(server.url().startsWith("http://127.0.0.1:"));
    }

    @Test
    void anotherTestSeesNothingOfThat(Queue prices, Client client) {
        assertEquals(1, prices.add(Map.of("key", "sku-2")).queued());
        assertEquals(1, prices.latest().toList().size());
        assertNotEquals("", prices.name());
        client.ready();
    }

    @Nested
    class Inner {
        @Test
        void nestedClassesHaveTheSameServer(Queue prices) {
            assertEquals(1, prices.add(Map.of("key", "sku-3")).queued());
        }
    }

    @Test
    void aServerKeepsItsDataInAFolder(@TempDir Path folder) {
        DeltaqServer.Options options = new DeltaqServer.Options().dataDir(folder);
        try (DeltaqServer server = DeltaqServer.start(options); Client client = server.client()) {
            client.queue("kept").add(Map.of("key", "a"));
            server.kill();
        }
        try (DeltaqServer server = DeltaqServer.start(options); Client client = server.client()) {
            assertEquals(1, client.queue("kept").status().ready());
        }
    }

    @Test
    void aServerThatDoesNotStartSaysWhy() {
        Exception failure = assertThrows(RuntimeException.class, () -> DeltaqServer.start(new DeltaqServer.Options().setting("server.wrong", "1")));
        String said = failure.getCause().getMessage();
        assertTrue(said.toLowerCase(java.util.Locale.ROOT).contains("wrong"), said);
    }

    @Test
    void anExtensionWhoseServerHasNotStartedEnds() {
        DeltaqExtension extension = new DeltaqExtension(new DeltaqServer.Options().binary("/nowhere/deltaq"));
        assertThrows(RuntimeException.class, () -> extension.beforeAll(null));
        extension.afterAll(null);
    }

    /** Starts a server, and ends without having ended it. */
    static final class Forgetful {
        public static void main(String[] arguments) {
            System.out.println(DeltaqServer.start().url());
            Runtime.getRuntime().halt(1);
        }
    }

    @Test
    @Timeout(60)
    void aServerEndsWithAProcessThatHasNotEndedIt(@TempDir Path folder) throws Exception {
        String classPath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        Process forgetful = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Djava.io.tmpdir=" + folder, "-cp",
                classPath, Forgetful.class.getName()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String url = new String(forgetful.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        try (Client client = new Client(url, new ClientOptions().retry(new RetryOptions().attempts(1)))) {
            while (isAlive(client) || folder.toFile().list().length > 0) {
                Thread.sleep(10);
            }
        }
    }

    private static boolean isAlive(Client client) {
        try {
            client.alive();
            return true;
        } catch (ConnectionException e) {
            return false;
        }
    }

    @Test
    void aScriptThatHasStartedTheServerEndsWithIt(@TempDir Path folder) throws Exception {
        Path script = folder.resolve("script");
        Files.writeString(script, "#!/bin/sh\n" + DeltaqServer.find() + " \"$@\"\n");
        assertTrue(script.toFile().setExecutable(true));
        String url;
        try (DeltaqServer server = DeltaqServer.start(new DeltaqServer.Options().binary(script.toString()))) {
            url = server.url();
        }
        try (Client client = new Client(url, new ClientOptions().retry(new RetryOptions().attempts(1)))) {
            assertThrows(ConnectionException.class, client::alive);
        }
    }
}
