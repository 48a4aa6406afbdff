package example.deltaq;

import java.util.Map;

/**
 * Which keys take turns.
 *
 * <p>The constructor has a parameter more when the server has a setting more; {@code of} and the methods that begin with {@code with} stay as they are.
 *
 * @param by what names the group of a key
 * @param maxLeased the keys of a group that workers may hold
 * @param rate the rate of each group
 * @param overrides the settings of single groups; the empty name is the group without one
 */
public record Groups(GroupBy by, Long maxLeased, DeliveryRate rate, Map<String, GroupOverride> overrides) {
    /**
     * Groups with a name, which take turns.
     *
     * @param by what names the group of a key
     * @return the value
     */
    public static Groups of(GroupBy by) {
        return new Groups(by, null, null, null);
    }

    /**
     * The same with maxLeased.
     *
     * @param value the keys of a group that workers may hold
     * @return a new value
     */
    public Groups withMaxLeased(long value) {
        return Documents.with(this, "maxLeased", value);
    }

    /**
     * The same with rate.
     *
     * @param value the rate of each group
     * @return a new value
     */
    public Groups withRate(DeliveryRate value) {
        return Documents.with(this, "rate", value);
    }

    /**
     * The same with overrides.
     *
     * @param value the settings of single groups; the empty name is the group without one
     * @return a new value
     */
    public Groups withOverrides(Map<String, GroupOverride> value) {
        return Documents.with(this, "overrides", value);
    }
}
