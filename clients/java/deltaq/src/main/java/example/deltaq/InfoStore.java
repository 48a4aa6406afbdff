package example.deltaq;

/**
 * The store of a server.
 *
 * @param kind sqlite, postgres or memory
 * @param replicated whether a standby has each change before it is acknowledged, or null
 */
public record InfoStore(String kind, Boolean replicated) {}
