package example.deltaq;

import java.util.List;

/**
 * Is met if a header or a value of the body is one of the values.
 *
 * @param header the header
 * @param pointer the JSON pointer
 * @param values the values
 */
public record HookCondition(String header, String pointer, List<String> values) {}
