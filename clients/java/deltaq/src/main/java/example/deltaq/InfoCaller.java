package example.deltaq;

import java.time.Instant;
import java.util.List;

/**
 * A token and what it permits.
 *
 * @param name the name
 * @param expiresAt when it expires, or null
 * @param grants what it permits
 */
public record InfoCaller(String name, Instant expiresAt, List<InfoGrant> grants) {}
