package example.deltaq;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;

/**
 * A JSON value as the text in which it was sent, so that {@code 9007199254740993} and {@code 1.10} stay as they were. {@link #as(Class)} decodes it into a
 * type of the application.
 */
public final class Json {
    private final String text;

    private Json(String text) {
        this.text = text;
    }

    /** Jackson is loaded when it is used for the first time. */
    static final class Jackson {
        static final ObjectMapper MAPPER = JsonMapper.builder()
                .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
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
        return new Json(text);
    }

    static Json read(Value value) {
        return new Json(value.text());
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
     * Decodes the value with Jackson. Members that the type does not have are ignored.
     *
     * @param type a record or class
     * @param <T> the type
     * @return the value
     * @throws DecodeException if the value is no such value
     */
    public <T> T as(Class<T> type) {
        return as(written -> Jackson.MAPPER.readValue(written, type));
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
