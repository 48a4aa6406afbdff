package example.deltaq;

import java.util.List;

/**
 * What a node says of itself.
 *
 * @param version the version
 * @param store the store
 * @param durability when a change is acknowledged
 * @param uptimeMs the time since its start
 * @param queues its queues
 * @param owned its partitions
 * @param diskFreeBytes the free bytes of the file system with the data directory; null with PostgreSQL and without a store
 */
public record NodeDetails(
        String version, String store, String durability, long uptimeMs, long queues, List<OwnedPartition> owned, Long diskFreeBytes) {}
