package example.deltaq;

import java.util.Map;

/**
 * Describes a server.
 *
 * @param name deltaq
 * @param version the version
 * @param durability when a change is acknowledged
 * @param store the store
 * @param node the node; null for a single server
 * @param uptimeMs the time since its start
 * @param memoryBytes the memory that it may use, or null
 * @param caller the token of the call; null on a server without tokens
 * @param links pages of the console
 * @param limits the limits
 */
@Needs("limits")
public record Info(
        String name, String version, String durability, InfoStore store, InfoNode node, long uptimeMs, Long memoryBytes, InfoCaller caller,
        InfoLinks links, Map<String, Long> limits) {}
