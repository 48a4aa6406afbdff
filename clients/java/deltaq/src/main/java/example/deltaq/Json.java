package example.deltaq;

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;

/**
 * A JSON value as the text in which it was sent, so that {@code 9007199254740993} and {@code 1.10} stay as they were. {@link #as(Class)} decodes it into a
 * type of the application.
 */
public final class Json {
    /** The decoder of a client that has no other one. */
    static final TypeDecoder JACKSON = (text, type) -> Jackson.MAPPER.readValue(text, type);

    private final String text;
    private final TypeDecoder decoder;

    private Json(String text, TypeDecoder decoder) {
        this.text = text;
        this.decoder = decoder;
    }

    /** Jackson is loaded when it is used for the first time. */
    static final class Jackson {
        static final ObjectMapper MAPPER = JsonMapper.builder()
                .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
                // 1.10 stays as it is in a tree, too.
                .nodeFactory(new JsonNodeFactory(true))
                // Encoding refuses them.
                .disable(JsonWriteFeature.WRITE_NAN_AS_STRINGS)
                .build();

        private Jackson() {}
    }

    /** Decodes the text of an object into a type of the application, with any library. */
    @FunctionalInterface
    public interface Decoder<T> {
        /**
         * Decodes a text.
         *
         * @param text JSON
         * @return the value
         * @throws Exception if the text is no such value
         */
        T decode(String text) throws Exception;
    }

    /** Decodes the text of an object into a class of the application, with any library. */
    @FunctionalInterface
    public interface TypeDecoder {
        /**
         * Decodes a text.
         *
         * @param text JSON
         * @param type the wanted class
         * @return a value of the class
         * @throws Exception if the text is no such value
         */
        Object decode(String text, Class<?> type) throws Exception;
    }

    /** Encodes an object of the application as JSON. */
    @FunctionalInterface
    public interface Encoder {
        /**
         * Encodes a value.
         *
         * @param value a value of the application
         * @return JSON
         * @throws Exception if the value can't be written
         */
        String encode(Object value) throws Exception;
    }

    /**
     * A text that is JSON already.
     *
     * @param text one JSON value
     * @return the value
     * @throws IllegalArgumentException if the text is not JSON
     */
    public static Json of(String text) {
        try {
            return read(Value.parse(text));
        } catch (JsonScanner.NotJson e) {
            throw new IllegalArgumentException(e.getMessage());
        }
    }

    /** A text that an encoder has written. */
    static Json trusted(String text) {
        return new Json(text, JACKSON);
    }

    static Json read(Value value) {
        return new Json(value.text(), value.decoder());
    }

    /**
     * The text.
     *
     * @return the text as it was sent
     */
    public String text() {
        return text;
    }

    /**
     * Whether the value is {@code null}.
     *
     * @return true for {@code null}
     */
    public boolean isNull() {
        return text.equals("null");
    }

    /**
     * Decodes the value with {@link ClientOptions#decoder} of the client that has received it. By default that is Jackson, and members that the type does not
     * have are ignored.
     *
     * @param type a record or class
     * @param <T> the type
     * @return the value
     * @throws DecodeException if the value is no such value
     */
    @SuppressWarnings("unchecked")
    public <T> T as(Class<T> type) {
        // No cast by the class, because that of int refuses an Integer.
        return as(written -> (T) decoder.decode(written, type));
    }

    /**
     * Decodes the value with any function, such as one of an own ObjectMapper.
     *
     * @param decoder the function
     * @param <T> the type
     * @return the value
     * @throws DecodeException if the function fails
     */
    public <T> T as(Decoder<T> decoder) {
        try {
            return decoder.decode(text);
        } catch (Exception e) {
            throw new DecodeException("the object can't be decoded: " + e.getMessage(), e);
        }
    }

    /** The text. */
    @Override
    public String toString() {
        return text;
    }

    /** Whether both have the same text. */
    @Override
    public boolean equals(Object other) {
        return other instanceof Json json && json.text.equals(text);
    }

    @Override
    public int hashCode() {
        return text.hashCode();
    }
}
