package example.deltaq;

/**
 * The settings of one group.
 *
 * @param weight its weight
 * @param maxLeased the number of keys that workers may hold
 * @param rate its rate
 */
public record GroupOverride(Long weight, Long maxLeased, DeliveryRate rate) {}
