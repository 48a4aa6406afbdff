package example.deltaq;

/**
 * What a change of settings would make of a queue.
 *
 * @param current the present settings, or null
 * @param etag their tag, or null
 * @param planned the settings after the change
 */
@Needs("planned")
public record SettingsPlan(QueueSettings current, String etag, QueueSettings planned) {}
