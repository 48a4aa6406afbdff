package example.deltaq;

/**
 * How many keys are delivered per second, and after a pause at once.
 *
 * @param perSecond keys per second
 * @param burst keys at once
 */
public record DeliveryRate(Double perSecond, Long burst) {}
