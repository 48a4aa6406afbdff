package example.deltaq;

/**
 * An operation of a JSON patch (RFC 6902), with the value that it replaces or removes.
 *
 * @param op add, remove or replace
 * @param path the JSON pointer
 * @param value the new value; null in a removal
 * @param old the value before; null in an addition
 */
public record DiffOperation(String op, String path, Json value, Json old) {}
