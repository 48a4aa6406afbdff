package example.deltaq;

import java.time.Instant;

/**
 * A group of keys that takes turns with others.
 *
 * @param name the name; null for the group without one
 * @param ready its keys that are ready
 * @param leased its keys that are leased
 * @param oldestReadyAgeMs how long the first of them has waited, or null
 * @param weight its weight
 * @param maxLeased the number of keys that workers may hold, or null
 * @param isFull whether they hold as many
 * @param paused whether it is paused
 * @param heldUntil the end of its hold, or null
 * @param rate its rate, or null
 * @param nextDeliveryAt when the rate lets the next key through, or null
 */
public record GroupStatus(
        String name, long ready, long leased, Long oldestReadyAgeMs, long weight, Long maxLeased, boolean isFull, boolean paused, Instant heldUntil,
        DeliveryRate rate, Instant nextDeliveryAt) {}
