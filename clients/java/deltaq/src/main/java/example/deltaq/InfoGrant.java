package example.deltaq;

import java.util.List;

/**
 * A grant of a token.
 *
 * @param verbs what it permits
 * @param queues on which queues
 * @param sources in the name of which sources; empty for all
 */
public record InfoGrant(List<String> verbs, List<String> queues, List<String> sources) {}
