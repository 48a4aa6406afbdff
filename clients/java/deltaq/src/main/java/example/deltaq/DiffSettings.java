package example.deltaq;

import java.util.Map;

/**
 * The arrays whose elements a difference compares one by one.
 *
 * @param arrayKeys for the pointer to each array, the pointer to what identifies an element
 */
public record DiffSettings(Map<String, String> arrayKeys) {}
