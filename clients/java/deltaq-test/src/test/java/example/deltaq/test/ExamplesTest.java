package example.deltaq.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Compiles and runs the examples of README.md, and compiles those of the documentation of the classes. */
@ExtendWith(DeltaqExtension.class)
class ExamplesTest {
    private static final String HEAD = """
            import com.fasterxml.jackson.databind.ObjectMapper;
            import example.deltaq.*;
            import example.deltaq.test.*;
            import java.math.BigDecimal;
            import java.time.Duration;
            import java.util.*;
            import java.util.concurrent.*;
            import org.junit.jupiter.api.*;
            import org.junit.jupiter.api.extension.*;
            import static org.junit.jupiter.api.Assertions.*;
            import example.deltaq.Queue;

            """;
    /** What the examples of classes have around them. */
    private static final String AROUND = """
                record Price(String key, BigDecimal price) {}
                interface Shop { void remove(String key); void store(Price price, long token); }
                interface Erp { List<Price> allPrices(); }
                static Client client; static Queue prices, offers, cities; static Shop shop; static Erp erp;
            """;

    @TempDir
    Path folder;

    @BeforeEach
    void theSourcesAreInTheRepository() {
        assumeTrue(Files.exists(Path.of("../README.md")) && ToolProvider.getSystemJavaCompiler() != null);
    }

    private void compile(String name, String source) throws IOException {
        Path file = folder.resolve(name + ".java");
        Files.writeString(file, source);
        String classPath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        int status = ToolProvider.getSystemJavaCompiler().run(null, said, said, "-proc:none", "-d", folder.toString(), "-cp", classPath, file.toString());
        assertEquals(0, status, said + "\n" + source);
    }

    @Test
    void theExamplesOfTheReadmePrintWhatItSays(DeltaqServer server) throws Exception {
        Matcher example = Pattern.compile("```java\n(.*?)```\n\n```text\n(.*?)```", Pattern.DOTALL).matcher(Files.readString(Path.of("../README.md")));
        int count = 0;
        while (example.find()) {
            String name = "Example" + ++count;
            String body = example.group(1).replace("http://localhost:7070", server.url());
            compile(name, HEAD + "public class " + name + " {\n    public static void main(String[] arguments) throws Exception {\n" + body + "    }\n}\n");
            PrintStream out = System.out;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()})) {
                System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
                loader.loadClass(name).getMethod("main", String[].class).invoke(null, (Object) new String[0]);
            } finally {
                System.setOut(out);
            }
            assertEquals(example.group(2), printed.toString(StandardCharsets.UTF_8), body);
        }
        assertEquals(5, count);
    }

    @Test
    void theExamplesOfTheClassesCompile() throws Exception {
        List<String> bodies = new ArrayList<>();
        for (String module : List.of("../deltaq", "../deltaq-test")) {
            try (Stream<Path> files = Files.walk(Path.of(module, "src/main/java"))) {
                for (Path file : files.filter(each -> each.toString().endsWith(".java")).toList()) {
                    Matcher example = Pattern.compile("<pre>\\{@code\n(.*?)\\}</pre>", Pattern.DOTALL).matcher(Files.readString(file));
                    while (example.find()) {
                        bodies.add(example.group(1).replaceAll("(?m)^ *\\* ?", ""));
                    }
                }
            }
        }
        for (int index = 0; index < bodies.size(); index++) {
            String name = "Documented" + index;
            String body = bodies.get(index);
            boolean isClass = body.startsWith("@");
            String method = isClass ? "static " + body.substring(body.indexOf("\nclass") + 1) : "static void example() throws Exception {\n" + body + "}\n";
            compile(name, HEAD + "class " + name + " {\n" + AROUND + method + "}\n");
        }
        assertTrue(bodies.size() >= 6, bodies.size() + " examples");
    }
}
