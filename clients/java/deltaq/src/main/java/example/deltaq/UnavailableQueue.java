package example.deltaq;

/**
 * A queue that can't be read at present.
 *
 * @param name the name
 * @param code the code of the problem
 * @param detail what is wrong
 * @param hint what to do, or null
 */
public record UnavailableQueue(String name, String code, String detail, String hint) {}
