package example.deltaq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JsonTest {
    record Price(String key, BigDecimal price) {}

    @Test
    void numbersStayAsTheyWereSent() {
        String text = "{\"a\": 9007199254740993, \"b\":1.10,\"c\":-1e-400 , \"d\":12345678901234567890123}";
        WatchRow row = Documents.read(Value.parse("{\"type\":\"Added\",\"resource_version\":9007199254740991,\"object\":" + text + "}"), WatchRow.class);
        assertEquals(text, row.object().text());
        assertEquals(9007199254740991L, row.resourceVersion());
        assertEquals(text, Documents.write(row.object()));
        assertEquals(new Price("a", new BigDecimal("1.10")), Json.of("{\"key\":\"a\",\"price\":1.10,\"more\":[1]}").as(Price.class));
    }

    @Test
    void numbersStayAsTheyWereSentInATree() {
        JsonNode tree = Json.of("{\"price\":1.10}").as(JsonNode.class);
        assertEquals("1.10", tree.get("price").decimalValue().toString());
        assertEquals("{\"price\":1.10}", new Encoding(new ClientOptions().encoder).write(tree));
        assertEquals(5, Json.of("5").as(int.class));
    }

    @Test
    void whatIsNoNumberOfJsonIsNotSent() {
        Encoding encoding = new Encoding(new ClientOptions().encoder);
        for (Object wrong : List.of(Double.NaN, Double.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY)) {
            assertThrows(EncodeException.class, () -> encoding.write(Map.of("key", "a", "price", wrong)));
        }
        assertEquals("{\"key\":\"NaN Infinity\"}", encoding.write(Map.of("key", "NaN Infinity")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"", " ", "{", "[1,]", "{\"a\":1,}", "01", "1.", ".5", "+1", "1e", "-", "nul", "\"\t\"", "\"\\x\"", "\"\\u12g4\"", "{a:1}", "[1 2]",
        "\"a", "{} {}", "NaN", "'a'", "{\"a\" 1}", "\u00a0{}"})
    void whatIsNotJsonIsRefused(String text) {
        assertThrows(IllegalArgumentException.class, () -> Json.of(text));
    }

    @Test
    void deepNestingIsRefusedBeforeTheStackEnds() {
        assertThrows(IllegalArgumentException.class, () -> Json.of("[".repeat(100_000)));
    }

    @Test
    void theReaderAgreesWithJackson() throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        Random random = new Random(7);
        for (int round = 0; round < 2_000; round++) {
            String text = random(random, 4);
            JsonNode wanted = mapper.readTree(text);
            assertSame(wanted, Value.parse(text));
            // What is cut is refused, or is a number that is as good as the whole.
            String cut = text.substring(0, random.nextInt(text.length()));
            if (text.startsWith("{") || text.startsWith("[")) {
                assertThrows(JsonScanner.NotJson.class, () -> Value.parse(cut), cut);
            }
        }
    }

    private static void assertSame(JsonNode wanted, Value value) {
        if (wanted.isObject()) {
            assertEquals(wanted.size(), value.members().size());
            value.members().forEach((name, member) -> assertSame(wanted.get(name), member));
        } else if (wanted.isArray()) {
            List<Value> elements = value.elements();
            assertEquals(wanted.size(), elements.size());
            for (int index = 0; index < elements.size(); index++) {
                assertSame(wanted.get(index), elements.get(index));
            }
        } else if (wanted.isTextual()) {
            assertEquals(wanted.asText(), value.string());
        } else if (wanted.isNumber()) {
            assertEquals(wanted.doubleValue(), value.real());
        } else {
            assertEquals(wanted.isNull(), value.isNull());
        }
    }

    private static String random(Random random, int depth) {
        String space = " ".repeat(random.nextInt(2)) + (random.nextInt(9) == 0 ? "\n\t" : "");
        StringBuilder text = new StringBuilder(space);
        switch (random.nextInt(depth > 0 ? 8 : 6)) {
            case 0 -> text.append(random.nextInt() / 7.0);
            case 1 -> text.append(random.nextLong());
            case 2 -> text.append(List.of("true", "false", "null").get(random.nextInt(3)));
            case 3, 4 -> text.append(quoted(random));
            case 5 -> text.append("-0.5E+3");
            case 6 -> {
                text.append('[');
                for (int count = random.nextInt(4); count > 0; count--) {
                    text.append(random(random, depth - 1)).append(count > 1 ? "," : "");
                }
                text.append(']');
            }
            default -> {
                text.append('{');
                for (int count = random.nextInt(4); count > 0; count--) {
                    text.append("\"").append(count).append(List.of("a", "\\u00e9", "\\\"").get(random.nextInt(3))).append("\" :");
                    text.append(random(random, depth - 1)).append(count > 1 ? "," : "");
                }
                text.append('}');
            }
        }
        return text.append(space).toString().strip();
    }

    private static String quoted(Random random) {
        return "\"" + List.of("", "a", "\\n\\r\\t\\b\\f\\/\\\\\\\"", "\\ud83d\\ude00", "😀 ü", "[{\\\"").get(random.nextInt(6)) + "\"";
    }

    @Test
    void documentsAreWrittenAsTheyAreRead() {
        QueueSettings settings = QueueSettings.builder().lease(Duration.ofSeconds(90)).key(List.of(KeyPart.of("/sku"), new KeyPart("/a", true)))
                .groups(Groups.of(new GroupBy(null, "/")).withMaxLeased(3).withOverrides(Map.of("", new GroupOverride(2L, null, null)))).build();
        String text = Documents.write(settings);
        assertEquals("{\"key\":[\"/sku\",{\"pointer\":\"/a\",\"optional\":true}],\"lease\":\"90s\","
                + "\"groups\":{\"by\":{\"key_prefix\":\"/\"},\"max_leased\":3,\"overrides\":{\"\":{\"weight\":2}}}}", text);
        assertEquals(settings, Documents.read(Value.parse(text), QueueSettings.class));
        assertEquals(5L, settings.toBuilder().maxFailures(5).build().maxFailures());
        assertNull(settings.maxFailures());
        assertEquals("{\"a\":\"\\\"\\\\\\n\\u0000\\ud800 😀\"}", Documents.write(Map.of("a", "\"\\\n\0\ud800 😀")));
    }

    private static Object sample(Class<?> type) {
        if (type.isRecord()) {
            return Documents.make(type.asSubclass(Record.class), Map.of());
        }
        Map<Class<?>, Object> samples = Map.of(String.class, "x", long.class, 1L, boolean.class, true, double.class, 0.5, Duration.class, Duration.ofSeconds(1),
                List.class, List.of("x"), Map.class, Map.of("x", "y"), Object.class, "x");
        return samples.get(type);
    }

    @ParameterizedTest
    @ValueSource(classes = {Push.class, Hook.class, Groups.class, RateLimiter.class, Debounce.class, Retention.class, Follow.class, DeltaCall.class,
        SeedCall.class, Settle.class})
    void recordsHaveAMethodForEachSetting(Class<? extends Record> type) throws Exception {
        int count = 0;
        for (Method method : type.getMethods()) {
            if (method.getName().startsWith("with")) {
                String component = method.getName().substring(4, 5).toLowerCase(Locale.ROOT) + method.getName().substring(5);
                Object value = sample(method.getParameterTypes()[0]);
                Object changed = method.invoke(Documents.make(type, Map.of()), value);
                assertEquals(Map.of(component, value), Documents.components((Record) changed));
                count++;
            }
        }
        // All but those that a factory takes.
        assertTrue(count >= type.getRecordComponents().length - 2, type + " has " + count);
    }

    @Test
    void differencesHaveNullAsAValue() {
        DiffOperation removed = Documents.read(Value.parse("{\"op\":\"remove\",\"path\":\"/a\",\"old\":null}"), DiffOperation.class);
        assertTrue(removed.old().isNull());
        assertNull(removed.value());
    }

    @ParameterizedTest
    @ValueSource(strings = {"1m30s=90s", "7d=604800s", "1.5s=1500ms", "250ms=250ms", "2us=0s2us", "1h1m1s=3661s", "-1m=-60s", "µ1=", "=", "1=", "1m 2s=", "s=", "1.5.5s="})
    void durationsAreReadAndWritten(String example) {
        String[] parts = example.split("=", -1);
        if (parts[1].isEmpty()) {
            assertThrows(IllegalArgumentException.class, () -> Durations.parse(parts[0]));
        } else {
            assertEquals(parts[1], Durations.format(Durations.parse(parts[0])));
            assertEquals(Durations.parse(parts[0]), Durations.parse(parts[1]));
        }
    }

    @Test
    void pointersIndexStringsAndArrays() {
        QueueObject object = new QueueObject("k", null, 1, Json.of("{\"a/b\":{\"c\":[\"x\",1,\"y\"]},\"n\":5,\"l\":[{\"s\":\"z\"}]}"));
        assertEquals(List.of("x", "y"), Indexer.pointer("/a~1b/c").values(object));
        assertEquals(List.of("z"), Indexer.pointer("/l/0/s").values(object));
        assertEquals(List.of(), Indexer.pointer("/n").values(object));
        assertEquals(List.of(), Indexer.pointer("/l/1/s").values(object));
        assertThrows(IllegalArgumentException.class, () -> Indexer.pointer("a"));
    }
}
