package example.deltaq;

/**
 * The resource of the Kubernetes API as which clients of Kubernetes read and write the objects of a queue.
 *
 * @param group the API group, a DNS name with a dot
 * @param version the version of the group
 * @param kind the kind of the objects
 * @param plural the name in paths
 * @param view latest or known; null for latest
 */
public record Kubernetes(String group, String version, String kind, String plural, String view) {}
