package example.deltaq;

import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.time.Duration;
import java.time.Instant;
import java.time.format.DateTimeParseException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Reads records from JSON and writes them. The component {@code resourceVersion} is the member {@code resource_version}. Members that a record does not have
 * are ignored, and components that are null are not written.
 */
final class Documents {
    private static final Map<Class<?>, Shape> SHAPES = new ConcurrentHashMap<>();

    private Documents() {}

    /** A type that is written, and read, in a form of its own. Such a record has a static method {@code read(Value)}. */
    interface OwnForm {
        Object written();
    }

    private record Part(String component, String member, Type type, RecordComponent read) {}

    private record Shape(Constructor<?> constructor, List<Part> parts, String needed) {}

    private static Shape shape(Class<?> type) {
        return SHAPES.computeIfAbsent(type, Documents::shapeOf);
    }

    private static Shape shapeOf(Class<?> type) {
        RecordComponent[] components = type.getRecordComponents();
        List<Part> parts = new ArrayList<>();
        Class<?>[] types = new Class<?>[components.length];
        for (int index = 0; index < components.length; index++) {
            RecordComponent component = components[index];
            Named named = component.getAnnotation(Named.class);
            String member = named != null ? named.value() : memberOf(component.getName());
            component.getAccessor().setAccessible(true);
            parts.add(new Part(component.getName(), member, component.getGenericType(), component));
            types[index] = component.getType();
        }
        try {
            Constructor<?> constructor = type.getDeclaredConstructor(types);
            constructor.setAccessible(true);
            Needs needs = type.getAnnotation(Needs.class);
            return new Shape(constructor, parts, needs == null ? null : needs.value());
        } catch (NoSuchMethodException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The name of a member of JSON. */
    static String memberOf(String component) {
        StringBuilder member = new StringBuilder();
        for (char letter : component.toCharArray()) {
            if (Character.isUpperCase(letter)) {
                member.append('_');
            }
            member.append(Character.toLowerCase(letter));
        }
        return member.toString();
    }

    /** A value of a record from its components by their names. Those that the map does not have are null, 0 or false. */
    static <T extends Record> T make(Class<T> type, Map<String, Object> components) {
        Shape shape = shape(type);
        Object[] arguments = new Object[shape.parts.size()];
        for (int index = 0; index < arguments.length; index++) {
            Part part = shape.parts.get(index);
            Object value = components.get(part.component);
            arguments[index] = value != null ? value : absent(part.type);
        }
        return type.cast(create(shape, arguments));
    }

    /** A record with another value of a component. */
    @SuppressWarnings("unchecked")
    static <T extends Record> T with(T of, String component, Object value) {
        Map<String, Object> components = components(of);
        components.put(component, value);
        return (T) make(of.getClass(), components);
    }

    /** The components of a record that are not null, by their names. */
    static Map<String, Object> components(Record of) {
        Map<String, Object> components = new LinkedHashMap<>();
        for (Part part : shape(of.getClass()).parts) {
            Object value = component(of, part);
            if (value != null) {
                components.put(part.component, value);
            }
        }
        return components;
    }

    /**
     * Reads a document.
     *
     * @throws JsonScanner.NotJson if a member is missing that every such document has, or a member has another type
     */
    static <T> T read(Value value, Class<T> type) {
        if (!value.isObject()) {
            throw new JsonScanner.NotJson("the reply is no document");
        }
        return type.cast(readRecord(value, type, Map.of()));
    }

    static <T> Page<T> readPage(Value value, Class<T> item) {
        if (!value.isObject()) {
            throw new JsonScanner.NotJson("the reply is no document");
        }
        @SuppressWarnings("unchecked")
        Page<T> page = (Page<T>) readRecord(value, Page.class, Map.of("T", item));
        return page;
    }

    private static Object readRecord(Value value, Class<?> type, Map<String, Type> variables) {
        Shape shape = shape(type);
        Map<String, Value> members = value.members();
        if (shape.needed != null && (!members.containsKey(shape.needed) || members.get(shape.needed).isNull())) {
            throw new JsonScanner.NotJson("the member " + shape.needed + " is missing");
        }
        Object[] arguments = new Object[shape.parts.size()];
        for (int index = 0; index < arguments.length; index++) {
            Part part = shape.parts.get(index);
            Type wanted = variables.getOrDefault(part.type.getTypeName(), part.type);
            Value member = members.get(part.member);
            // A difference may have null as a value.
            boolean isAbsent = member == null || (member.isNull() && type != DiffOperation.class);
            arguments[index] = isAbsent ? absent(wanted) : readAs(member, wanted, variables);
        }
        return create(shape, arguments);
    }

    private static Object create(Shape shape, Object[] arguments) {
        try {
            return shape.constructor.newInstance(arguments);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof RuntimeException cause) {
                throw cause;
            }
            throw new IllegalStateException(e);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Object absent(Type type) {
        if (type == boolean.class) {
            return false;
        }
        if (type == long.class) {
            return 0L;
        }
        return type == double.class ? (Object) 0.0 : null;
    }

    private static Object readAs(Value value, Type type, Map<String, Type> variables) {
        if (type instanceof ParameterizedType generic) {
            Type inner = generic.getActualTypeArguments()[generic.getActualTypeArguments().length - 1];
            Type element = variables.getOrDefault(inner.getTypeName(), inner);
            return generic.getRawType() == Map.class ? readMap(value, element, variables) : readList(value, element, variables);
        }
        Class<?> wanted = (Class<?>) type;
        if (wanted == String.class) {
            return value.string();
        }
        if (wanted == long.class || wanted == Long.class) {
            return value.number();
        }
        if (wanted == boolean.class || wanted == Boolean.class) {
            return value.bool();
        }
        if (wanted == double.class || wanted == Double.class) {
            return value.real();
        }
        if (wanted == Json.class) {
            return Json.read(value);
        }
        if (wanted == Instant.class) {
            return instant(value.string());
        }
        if (wanted == Duration.class) {
            return Durations.parse(value.string());
        }
        return OwnForm.class.isAssignableFrom(wanted) ? readOwn(value, wanted) : readRecord(value, wanted, variables);
    }

    private static Object readOwn(Value value, Class<?> type) {
        try {
            var read = type.getDeclaredMethod("read", Value.class);
            read.setAccessible(true);
            return read.invoke(null, value);
        } catch (InvocationTargetException e) {
            throw new JsonScanner.NotJson(String.valueOf(e.getCause().getMessage()));
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static List<Object> readList(Value value, Type element, Map<String, Type> variables) {
        List<Object> list = new ArrayList<>();
        for (Value each : value.elements()) {
            list.add(readAs(each, element, variables));
        }
        return Collections.unmodifiableList(list);
    }

    private static Map<String, Object> readMap(Value value, Type element, Map<String, Type> variables) {
        Map<String, Object> map = new LinkedHashMap<>();
        value.members().forEach((name, each) -> map.put(name, readAs(each, element, variables)));
        return Collections.unmodifiableMap(map);
    }

    private static Instant instant(String text) {
        try {
            return Instant.parse(text);
        } catch (DateTimeParseException e) {
            throw new JsonScanner.NotJson("no instant: " + text);
        }
    }

    private static Object component(Object of, Part part) {
        try {
            return part.read.getAccessor().invoke(of);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    /** The members of a record that are not null, by their names in JSON. */
    static Map<String, Object> members(Record record) {
        Map<String, Object> members = new LinkedHashMap<>();
        for (Part part : shape(record.getClass()).parts) {
            Object member = component(record, part);
            if (member != null) {
                members.put(part.member, member);
            }
        }
        return members;
    }

    /** Writes documents, texts, numbers, lists and maps as JSON. */
    static String write(Object value) {
        StringBuilder text = new StringBuilder();
        write(text, value);
        return text.toString();
    }

    private static void write(StringBuilder into, Object value) {
        if (value == null || value instanceof Boolean || value instanceof Long || value instanceof Integer || value instanceof Double) {
            into.append(value);
        } else if (value instanceof Json json) {
            into.append(json.text());
        } else if (value instanceof OwnForm form) {
            write(into, form.written());
        } else if (value instanceof Duration length) {
            quote(into, Durations.format(length));
        } else if (value instanceof Record record) {
            writeMembers(into, members(record));
        } else if (value instanceof Map<?, ?> map) {
            writeMembers(into, map);
        } else if (value instanceof Collection<?> list) {
            into.append('[');
            String comma = "";
            for (Object each : list) {
                into.append(comma);
                write(into, each);
                comma = ",";
            }
            into.append(']');
        } else {
            quote(into, value.toString());
        }
    }

    private static void writeMembers(StringBuilder into, Map<?, ?> members) {
        into.append('{');
        String comma = "";
        for (Map.Entry<?, ?> member : members.entrySet()) {
            into.append(comma);
            quote(into, member.getKey().toString());
            into.append(':');
            write(into, member.getValue());
            comma = ",";
        }
        into.append('}');
    }

    private static void quote(StringBuilder into, String text) {
        into.append('"');
        for (int index = 0; index < text.length(); index++) {
            char letter = text.charAt(index);
            switch (letter) {
                case '"', '\\' -> into.append('\\').append(letter);
                case '\n' -> into.append("\\n");
                default -> {
                    boolean isHalf = Character.isSurrogate(letter) && !isPair(text, index);
                    if (letter < ' ' || isHalf) {
                        into.append(String.format("\\u%04x", (int) letter));
                    } else {
                        into.append(letter);
                    }
                }
            }
        }
        into.append('"');
    }

    private static boolean isPair(String text, int index) {
        return Character.isHighSurrogate(text.charAt(index))
                ? index + 1 < text.length() && Character.isLowSurrogate(text.charAt(index + 1))
                : index > 0 && Character.isHighSurrogate(text.charAt(index - 1));
    }
}
