package example.deltaq;

import java.util.Map;

/**
 * What names the group of a key. One of both is null.
 *
 * @param value a JSON pointer, or {@code source}
 * @param keyPrefix the text that ends the beginning of a key
 */
public record GroupBy(String value, String keyPrefix) implements Documents.OwnForm {
    @Override
    public Object written() {
        return value != null ? value : Map.of("key_prefix", keyPrefix);
    }

    static GroupBy read(Value value) {
        return value.isString() ? new GroupBy(value.string(), null) : new GroupBy(null, value.members().get("key_prefix").string());
    }
}
