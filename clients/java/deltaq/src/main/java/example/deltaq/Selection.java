package example.deltaq;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Selects delayed or parked keys. */
public final class Selection {
    private final Map<String, Object> body = new LinkedHashMap<>();

    private Selection(String name, Object value) {
        body.put(name, value);
    }

    /**
     * Selects keys.
     *
     * @param keys the keys
     * @return the selection
     */
    public static Selection keys(String... keys) {
        return new Selection("keys", List.of(keys));
    }

    /**
     * Selects the keys with this last error.
     *
     * @param error the error; empty for keys without one
     * @return the selection
     */
    public static Selection error(String error) {
        return new Selection("error", Check.given("error", error));
    }

    /**
     * Selects all keys.
     *
     * @return the selection
     */
    public static Selection all() {
        return new Selection("all", true);
    }

    /**
     * Refuses the call if it selects another number of keys.
     *
     * @param count the number
     * @return this
     */
    public Selection expectedCount(long count) {
        body.put("expected_count", count);
        return this;
    }

    Map<String, Object> body() {
        return body;
    }
}
