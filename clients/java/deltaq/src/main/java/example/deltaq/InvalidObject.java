package example.deltaq;

/**
 * An object that a call has left out.
 *
 * @param index its place in the call, from 0
 * @param key its key; null if it can't be read
 * @param code the code of the problem
 * @param detail what is wrong
 */
public record InvalidObject(long index, String key, String code, String detail) {}
