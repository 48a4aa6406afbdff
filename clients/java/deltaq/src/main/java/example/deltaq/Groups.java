package example.deltaq;

import java.util.Map;

/**
 * Which keys take turns.
 *
 * @param by what names the group of a key
 * @param maxLeased the keys of a group that workers may hold
 * @param rate the rate of each group
 * @param overrides the settings of single groups; the empty name is the group without one
 */
public record Groups(GroupBy by, Long maxLeased, DeliveryRate rate, Map<String, GroupOverride> overrides) {}
