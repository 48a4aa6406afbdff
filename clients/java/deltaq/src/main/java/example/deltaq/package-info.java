/**
 * The client of deltaq, a service that keeps one system in step with another.
 *
 * <ul>
 *   <li>{@link example.deltaq.Client} and {@link example.deltaq.Queue} have all calls of the API, with retries.
 *   <li>{@link example.deltaq.Worker} runs a handler for each changed key.
 *   <li>{@link example.deltaq.Informer} keeps a copy of a queue in memory, with indexes, and calls handlers for its changes.
 *   <li>{@link example.deltaq.Reflector} keeps a queue in step with a source.
 * </ul>
 *
 * <p>Objects to send are any values that Jackson writes as JSON objects. Objects that are received are {@link example.deltaq.Json} with the text as it was
 * sent, so that 9007199254740993 and 1.10 stay as they were.
 */
package example.deltaq;
