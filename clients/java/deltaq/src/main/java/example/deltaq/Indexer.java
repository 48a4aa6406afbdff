package example.deltaq;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Returns the values of an object in an index of a {@link Store}. An exception ends the informer. */
@FunctionalInterface
public interface Indexer {
    /**
     * The values of an object.
     *
     * @param object the object
     * @return the values
     */
    List<String> values(QueueObject object);

    /**
     * An index whose value is the string at a JSON pointer such as {@code /city}, or whose values are the strings in the array there. An object without them
     * has no value.
     *
     * @param pointer the pointer
     * @return the index
     * @throws IllegalArgumentException if the pointer does not begin with a slash
     */
    static Indexer pointer(String pointer) {
        if (!pointer.startsWith("/")) {
            throw new IllegalArgumentException("\"" + pointer + "\" is not a JSON pointer: it must begin with /");
        }
        List<String> steps = new ArrayList<>();
        for (String step : pointer.substring(1).split("/", -1)) {
            steps.add(step.replace("~1", "/").replace("~0", "~"));
        }
        return object -> {
            Value found = Value.parse(object.object().text());
            for (String step : steps) {
                found = member(found, step);
                if (found == null) {
                    return List.of();
                }
            }
            List<String> values = new ArrayList<>();
            for (Value each : found.isArray() ? found.elements() : List.of(found)) {
                if (each.isString()) {
                    values.add(each.string());
                }
            }
            return values;
        };
    }

    private static Value member(Value value, String step) {
        if (value.isObject()) {
            Map<String, Value> members = value.members();
            return members.get(step);
        }
        if (value.isArray() && step.matches("0|[1-9][0-9]{0,8}")) {
            List<Value> elements = value.elements();
            int index = Integer.parseInt(step);
            return index < elements.size() ? elements.get(index) : null;
        }
        return null;
    }
}
