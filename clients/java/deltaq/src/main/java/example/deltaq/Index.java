package example.deltaq;

/**
 * An index of the known objects.
 *
 * @param name its name
 * @param pointer the JSON pointer to its values
 * @param state ready or building
 * @param values the number of different values
 * @param keys the keys with a value
 * @param omittedValues the values that are not indexed
 */
public record Index(String name, String pointer, String state, long values, long keys, long omittedValues) {}
