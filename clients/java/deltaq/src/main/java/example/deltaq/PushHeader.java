package example.deltaq;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The value of a header: a text, or the first line of a secret of the server.
 *
 * @param text the text; null for a secret
 * @param secret the name of the secret; null for a text
 * @param prefix the text before the secret, such as {@code "Bearer "}, or null
 */
public record PushHeader(String text, String secret, String prefix) implements Documents.OwnForm {
    @Override
    public Object written() {
        if (secret == null) {
            return text;
        }
        Map<String, Object> members = new LinkedHashMap<>();
        members.put("secret", secret);
        if (prefix != null) {
            members.put("prefix", prefix);
        }
        return members;
    }

    static PushHeader read(Value value) {
        if (value.isString()) {
            return new PushHeader(value.string(), null, null);
        }
        Map<String, Value> members = value.members();
        Value prefix = members.get("prefix");
        return new PushHeader(null, members.get("secret").string(), prefix == null || prefix.isNull() ? null : prefix.string());
    }
}
