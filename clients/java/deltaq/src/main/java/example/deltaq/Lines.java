package example.deltaq;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

/** A list with one object a line. */
final class Lines {
    /** The line of an object that can't be written as JSON. It is not JSON, so the server leaves the object out. */
    private static final String UNWRITABLE = "!";

    private final Encoding encoding;
    /** Whether objects that can't be written are left out. */
    private final boolean skipsInvalid;
    private final StringBuilder text = new StringBuilder();
    private long count;
    /** The reasons for objects that can't be written, by their place in the list. */
    private final Map<Long, String> unfit = new HashMap<>();

    Lines(Encoding encoding, boolean skipsInvalid) {
        this.encoding = encoding;
        this.skipsInvalid = skipsInvalid;
    }

    void add(Object object) {
        try {
            text.append(encoding.line(object));
        } catch (EncodeException e) {
            if (!skipsInvalid) {
                throw new EncodeException("object " + count + ": " + e.reason(), e.getCause());
            }
            unfit.put(count, e.reason());
            text.append(UNWRITABLE);
        }
        text.append('\n');
        count++;
    }

    /** Adds the last line, which says that the list is complete. */
    void end() {
        text.append("{\"$end\":").append(count).append("}\n");
    }

    /** Adds a list, and returns whether it has at most a number of characters. Otherwise it stops early. */
    boolean fill(Iterator<?> objects, int lengthMax) {
        while (objects.hasNext()) {
            add(objects.next());
            if (text.length() > lengthMax) {
                return false;
            }
        }
        end();
        return true;
    }

    int length() {
        return text.length();
    }

    /** Returns the text, and goes on without it. */
    String take() {
        String taken = text.toString();
        text.setLength(0);
        return taken;
    }

    void clear() {
        text.setLength(0);
        count = 0;
        unfit.clear();
    }

    /** Puts the reasons for objects that could not be written into a reply, because the server has only received a broken line. */
    Produced explain(Produced reply) {
        if (unfit.isEmpty()) {
            return reply;
        }
        List<InvalidObject> explained = new ArrayList<>();
        for (InvalidObject invalid : reply.invalidObjects()) {
            String reason = unfit.get(invalid.index());
            explained.add(reason == null ? invalid : new InvalidObject(invalid.index(), invalid.key(), invalid.code(), reason));
        }
        return reply.with(explained, reply.invalid());
    }
}
