package example.deltaq;

import java.time.Duration;

/**
 * Which ready key is delivered first.
 *
 * @param headStart by a head start
 * @param priority by a priority
 * @param initialList the head start of the initial list
 * @param resync the head start of a resync
 */
public record Order(HeadStartOrder headStart, PriorityOrder priority, Duration initialList, Duration resync) {}
