package example.deltaq;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A JSON pointer to a part of the key.
 *
 * @param pointer the pointer, such as {@code /sku}
 * @param optional whether the value at the pointer may be absent
 */
public record KeyPart(String pointer, boolean optional) implements Documents.OwnForm {
    /**
     * A part that every object has.
     *
     * @param pointer the pointer
     * @return the part
     */
    public static KeyPart of(String pointer) {
        return new KeyPart(pointer, false);
    }

    @Override
    public Object written() {
        if (!optional) {
            return pointer;
        }
        Map<String, Object> members = new LinkedHashMap<>();
        members.put("pointer", pointer);
        members.put("optional", true);
        return members;
    }

    static KeyPart read(Value value) {
        if (value.isString()) {
            return of(value.string());
        }
        Map<String, Value> members = value.members();
        return new KeyPart(members.get("pointer").string(), members.containsKey("optional") && members.get("optional").bool());
    }
}
