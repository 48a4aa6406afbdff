package example.deltaq;

import java.time.Duration;

/**
 * Takes the priority of each object from the object.
 *
 * @param pointer the JSON pointer
 * @param step the head start of one unit; null for a class of its own for each priority
 */
public record PriorityOrder(String pointer, Duration step) {}
