package example.deltaq;

import com.fasterxml.jackson.core.TreeNode;
import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/** Writes objects of the application. */
final class Encoding {
    static final String NO_UTF8 = "a text has half of a pair of surrogates, which UTF-8 can't have";

    private final Json.Encoder encoder;

    Encoding(Json.Encoder encoder) {
        this.encoder = encoder;
    }

    /** Writes an object as JSON. */
    String write(Object object) {
        String text = text(object);
        if (!isUtf8(text)) {
            throw new EncodeException(NO_UTF8, null);
        }
        return text;
    }

    /** Whether UTF-8 has all letters of a text. It has no halves of pairs, for which Java would send question marks: another key. */
    static boolean isUtf8(String text) {
        for (int index = 0; index < text.length(); index++) {
            char letter = text.charAt(index);
            if (!Character.isSurrogate(letter)) {
                continue;
            }
            if (index + 1 == text.length() || !Character.isSurrogatePair(letter, text.charAt(index + 1))) {
                return false;
            }
            index++;
        }
        return true;
    }

    private String text(Object object) {
        if (object == null) {
            throw new EncodeException("there is no object, but null", null);
        }
        if (object instanceof Json json) {
            return json.text();
        }
        if (object instanceof DeltaCall || object instanceof SeedCall) {
            return Documents.write(written((Record) object));
        }
        if (object instanceof CharSequence || object instanceof byte[]) {
            throw new EncodeException("a text is no object; Json.of(text) is an object that is JSON already", null);
        }
        String text;
        try {
            text = encoder.encode(object);
        } catch (Exception | StackOverflowError e) {
            throw new EncodeException(String.valueOf(e.getMessage()), e);
        }
        if (text == null || text.isBlank() || text.strip().equals("null")) {
            throw new EncodeException("there is no object, but null", null);
        }
        if (text.contains("NaN") || text.contains("Infinity")) {
            check(text);
        }
        return text;
    }

    private static void check(String text) {
        try {
            Value.parse(text);
        } catch (JsonScanner.NotJson e) {
            throw new EncodeException(e.getMessage(), e);
        }
    }

    /** The members of an entry, with its object as JSON. */
    private Map<String, Object> written(Record entry) {
        Map<String, Object> members = Documents.members(entry);
        Object object = members.get("object");
        if (object != null) {
            members.put("object", Json.trusted(write(object)));
        }
        return members;
    }

    /** Writes an object on one line. */
    String line(Object object) {
        String text = write(object);
        if (text.indexOf('\n') < 0 && text.indexOf('\r') < 0) {
            return text;
        }
        // Line breaks are white space between tokens, because a string of JSON has none.
        check(text);
        return text.replace('\n', ' ').replace('\r', ' ');
    }

    /** Writes an object, or those of a list. The error names the place of an object of a list. */
    String objects(Object objects) {
        Iterator<?> list = iterator(objects);
        if (list == null) {
            return write(objects);
        }
        StringBuilder text = new StringBuilder("[");
        for (long index = 0; list.hasNext(); index++) {
            if (index > 0) {
                text.append(',');
            }
            try {
                text.append(write(list.next()));
            } catch (EncodeException e) {
                throw new EncodeException("object " + index + ": " + e.reason(), e.getCause());
            }
        }
        return text.append(']').toString();
    }

    /** The elements of a list; null for a single object. */
    private static Iterator<?> iterator(Object objects) {
        if (objects instanceof Object[] array) {
            return Arrays.asList(array).iterator();
        }
        if (objects != null && objects.getClass().isArray() && !(objects instanceof byte[])) {
            List<Object> elements = new ArrayList<>();
            for (int index = 0; index < Array.getLength(objects); index++) {
                elements.add(Array.get(objects, index));
            }
            return elements.iterator();
        }
        if (objects instanceof Iterable<?> list && !isTree(objects)) {
            return list.iterator();
        }
        return objects instanceof java.util.stream.Stream<?> stream ? stream.iterator() : null;
    }

    /** Whether an object is a tree of Jackson, which is iterable also if it is no array. */
    private static boolean isTree(Object object) {
        return object instanceof TreeNode tree && !tree.isArray();
    }
}
