package example.deltaq;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A value in a JSON text. Its members and elements are read when they are asked for, and every value keeps its text. */
final class Value {
    static final Value NULL = new Value("null", 0, 4, Json.JACKSON);

    private final String source;
    private final int start;
    private final int end;
    private final Json.TypeDecoder decoder;

    private Value(String source, int start, int end, Json.TypeDecoder decoder) {
        this.source = source;
        this.start = start;
        this.end = end;
        this.decoder = decoder;
    }

    /**
     * Reads a text that is one value.
     *
     * @throws JsonScanner.NotJson if it is not
     */
    static Value parse(String text) {
        return parse(text, Json.JACKSON);
    }

    /** Reads a text whose values are decoded with a decoder. */
    static Value parse(String text, Json.TypeDecoder decoder) {
        JsonScanner scanner = new JsonScanner(text, 0);
        Value value = next(scanner, decoder);
        scanner.end();
        return value;
    }

    private static Value next(JsonScanner scanner, Json.TypeDecoder decoder) {
        scanner.peek();
        int start = scanner.at;
        scanner.skip();
        return new Value(scanner.text, start, scanner.at, decoder);
    }

    /** The text, as it was written. */
    String text() {
        return source.substring(start, end);
    }

    Json.TypeDecoder decoder() {
        return decoder;
    }

    private char first() {
        return source.charAt(start);
    }

    boolean isNull() {
        return first() == 'n';
    }

    boolean isString() {
        return first() == '"';
    }

    boolean isObject() {
        return first() == '{';
    }

    boolean isArray() {
        return first() == '[';
    }

    /** The members of an object; of several with one name the last. */
    Map<String, Value> members() {
        JsonScanner scanner = new JsonScanner(source, start);
        scanner.expect('{');
        Map<String, Value> members = new LinkedHashMap<>();
        if (scanner.take('}')) {
            return members;
        }
        do {
            String name = scanner.string();
            scanner.expect(':');
            members.put(name, next(scanner, decoder));
        } while (scanner.take(','));
        return members;
    }

    /** The elements of an array. */
    List<Value> elements() {
        JsonScanner scanner = new JsonScanner(source, start);
        scanner.expect('[');
        List<Value> elements = new ArrayList<>();
        if (scanner.take(']')) {
            return elements;
        }
        do {
            elements.add(next(scanner, decoder));
        } while (scanner.take(','));
        return elements;
    }

    String string() {
        return new JsonScanner(source, start).string();
    }

    boolean bool() {
        if (first() != 't' && first() != 'f') {
            throw new JsonScanner.NotJson("not true or false: " + shown());
        }
        return first() == 't';
    }

    long number() {
        try {
            return Long.parseLong(text());
        } catch (NumberFormatException e) {
            throw new JsonScanner.NotJson("no whole number: " + shown());
        }
    }

    double real() {
        try {
            return Double.parseDouble(text());
        } catch (NumberFormatException e) {
            throw new JsonScanner.NotJson("no number: " + shown());
        }
    }

    private String shown() {
        return source.substring(start, Math.min(end, start + 40));
    }
}
