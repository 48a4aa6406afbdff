package example.deltaq.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Calls a method of a bean for each changed key of a queue. Its parameters may be a {@link example.deltaq.Job}, and one of a type into which the newest object
 * is decoded. For a deleted key, that is its last object. A return, or the completion of a {@code CompletionStage} that is returned, acknowledges the key; an
 * exception says how it ends otherwise. So a method that Spring runs in another thread must return a {@code CompletableFuture}. The application runs as long as
 * its listeners.
 *
 * <pre>{@code
 * @Component
 * class Offers {
 *     @DeltaqListener(queue = "offers", concurrency = "8")
 *     void store(Offer offer, Job job) {
 *         if (job.isDeleted()) {
 *             shop.remove(job.key());
 *         } else {
 *             shop.store(offer, job.token());
 *         }
 *     }
 * }
 * }</pre>
 *
 * <p>The texts may have placeholders, such as {@code ${offers.queue}}.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface DeltaqListener {
    /**
     * The name of the queue.
     *
     * @return the name
     */
    String queue();

    /**
     * The handlers that run at once.
     *
     * @return a number
     */
    String concurrency() default "1";

    /**
     * The only group whose keys are taken.
     *
     * @return its name; empty for all keys
     */
    String group() default "";

    /**
     * The length of the leases, such as {@code 1m}.
     *
     * @return a duration; empty for that of the queue
     */
    String leaseDuration() default "";

    /**
     * The failures in a row, of different keys, that pause the worker.
     *
     * @return a number; empty for none
     */
    String breaker() default "";

    /**
     * Whether the method is called for deletions, with the last object. Otherwise they are acknowledged without a call. A method with an object, and without a
     * Job that says which keys are deleted, has no deletions.
     *
     * @return true if it is
     */
    boolean deleted() default true;
}
