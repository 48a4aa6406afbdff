package example.deltaq;

import java.time.Duration;

/**
 * Takes the head start of each object from the object.
 *
 * @param pointer the JSON pointer
 * @param otherwise the head start of an object without one
 */
public record HeadStartOrder(String pointer, @Named("default") Duration otherwise) {}
