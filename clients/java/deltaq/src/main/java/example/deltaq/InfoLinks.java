package example.deltaq;

/**
 * The pages that the console links to.
 *
 * @param grafana the URL, or null
 * @param docs the URL, or null
 */
public record InfoLinks(String grafana, String docs) {}
