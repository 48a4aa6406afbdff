package example.deltaq;

/**
 * A place where an object violates the schema of its queue.
 *
 * @param pointer the place in the object
 * @param schemaPointer the place in the schema
 * @param detail what is wrong
 */
public record Violation(String pointer, String schemaPointer, String detail) {}
