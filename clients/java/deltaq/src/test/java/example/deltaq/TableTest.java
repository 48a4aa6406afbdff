package example.deltaq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Compares docs/clients.md and docs/api/problems.md with the client. */
class TableTest {
    private static final Path DOCS = Path.of("../../../docs");

    @BeforeAll
    static void thePagesAreInTheRepository() {
        assumeTrue(Files.exists(DOCS.resolve("clients.md")));
    }

    /** The cells of the rows with this number of columns, without headings. */
    private static List<String[]> rows(int columns) throws IOException {
        List<String[]> rows = new ArrayList<>();
        for (String line : Files.readAllLines(DOCS.resolve("clients.md"))) {
            if (!line.startsWith("|")) {
                continue;
            }
            String[] cells = Arrays.stream(line.substring(1, line.lastIndexOf('|')).split("\\|", -1)).map(String::strip).toArray(String[]::new);
            if (cells.length == columns && !cells[0].isEmpty() && !cells[0].startsWith("---")) {
                rows.add(cells);
            }
        }
        return rows;
    }

    private static Class<?> type(String name) throws ClassNotFoundException {
        return Class.forName((name.equals("Tracing") ? "example.deltaq.otel." : "example.deltaq.") + name);
    }

    private static boolean hasMethod(String name) throws ClassNotFoundException {
        String[] parts = name.split("\\.");
        return Arrays.stream(type(parts[0]).getMethods()).anyMatch(method -> method.getName().equals(parts[1]));
    }

    /** The options of each type as they are in force if nothing is set. */
    private static Object effective(String type, WorkerOptions options) throws ReflectiveOperationException {
        Queue queue = new Client("http://localhost:7070").queue("q");
        return switch (type) {
            case "WorkerOptions" -> new Worker(queue, job -> {}, options).options;
            case "InformerOptions" -> new Informer(queue).options;
            case "ReflectorOptions" -> new Reflector(queue, "s").options;
            default -> type(type).getDeclaredConstructor().newInstance();
        };
    }

    private static String text(Object value) {
        if (value == null || value.equals(Map.of()) || value.equals(List.of())) {
            return "none";
        }
        return value instanceof Boolean flag ? (flag ? "yes" : "no") : value.toString();
    }

    @Test
    void theClientHasTheNamesAndDefaultsOfThePage() throws Exception {
        int compared = 0;
        for (String[] cells : rows(6)) {
            String name = cells[5].replace("`", "");
            assertTrue(hasMethod(name), cells[0] + ": " + name);
            compared++;
        }
        for (String[] cells : rows(7)) {
            String name = cells[6].replace("`", "");
            String[] parts = name.split("\\.");
            assertTrue(hasMethod(name), cells[0] + ": " + name);
            Field field = type(parts[0]).getDeclaredField(parts[1]);
            Object value = field.get(effective(parts[0], new WorkerOptions()));
            compared++;
            switch (cells[1]) {
                case "unique" -> assertNotEquals(value, field.get(effective(parts[0], new WorkerOptions())));
                case "concurrency" -> assertEquals(7, field.get(effective(parts[0], new WorkerOptions().concurrency(7))));
                default -> {
                    boolean isOff = cells[1].equals("none") && Integer.valueOf(0).equals(value);
                    Object wanted = value instanceof Duration ? Durations.parse(cells[1]) : cells[1];
                    assertTrue(isOff || wanted.equals(value instanceof Duration ? value : text(value)), name + " is " + value + ", not " + cells[1]);
                }
            }
        }
        assertTrue(compared > 90, compared + " names");
    }

    @Test
    void itemsHaveTheNamesOfThePage() throws Exception {
        List<String> names = new ArrayList<>();
        for (String[] cells : rows(5)) {
            names.add(cells[4].replace("`", ""));
            assertTrue(hasMethod(names.get(names.size() - 1)), cells[0]);
        }
        assertEquals(List.of("PoppedItem.newest", "PoppedItem.isDeleted", "PoppedItem.object"), names);
    }

    @Test
    void whatHasNoOptionHasTheValueOfThePage() throws Exception {
        Duration pause = WorkerCalls.ABSENT_FIRST;
        for (int count = 0; count < 20; count++) {
            pause = WorkerCalls.absentAfter(pause);
        }
        Map<String, String> values = Map.of(
                "longest error of a failed key, of which the end is kept",
                Failures.bounded("x".repeat(9_999)).getBytes(StandardCharsets.UTF_8).length + " bytes",
                "first pause while the queue of a worker does not exist", Durations.format(WorkerCalls.ABSENT_FIRST),
                "longest pause while the queue of a worker does not exist", Durations.format(pause),
                "time for the last calls of a worker that stops", Durations.format(WorkerRun.LAST_CALLS));
        List<String[]> rows = rows(2);
        assertFalse(rows.isEmpty());
        for (String[] cells : rows) {
            assertEquals(cells[1], values.get(cells[0]), cells[0]);
        }
    }

    @Test
    void allCodesOfThePageAreThere() throws Exception {
        Collection<String> codes = new ArrayList<>();
        for (Field field : Codes.class.getFields()) {
            codes.add((String) field.get(null));
        }
        List<String> missing = new ArrayList<>();
        for (String line : Files.readAllLines(DOCS.resolve("api/problems.md"))) {
            Matcher code = Pattern.compile("`([a-z]+(?:-[a-z]+)+|internal|unauthorized|forbidden|draining|recovering|timeout|expired|follower|followed)`").matcher(line);
            while (line.matches("\\| [0-9].*") && code.find()) {
                if (!codes.contains(code.group(1))) {
                    missing.add(code.group(1));
                }
            }
        }
        assertEquals(List.of(), missing);
    }
}
