package example.deltaq;

/**
 * What an endpoint has answered to a test request.
 *
 * @param status the status; null without a whole answer
 * @param durationMs the time
 * @param answer the status with the start of the body, or why there is no answer
 */
@Needs("answer")
public record PushTest(Long status, long durationMs, String answer) {}
