package example.deltaq;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;

/** Options of a worker. */
public final class WorkerOptions {
    String name;
    int concurrency = 1;
    Integer batch;
    Duration leaseDuration;
    Duration wait = Duration.ofSeconds(20);
    Duration grace = Duration.ofSeconds(30);
    Integer breaker;
    String group;
    List<UnaryOperator<Handler>> middleware = List.of();
    boolean withKnown;
    boolean withDiff;

    /** The defaults. */
    public WorkerOptions() {}

    WorkerOptions copy() {
        WorkerOptions copy = new WorkerOptions();
        copy.name = name;
        copy.concurrency = concurrency;
        copy.batch = batch;
        copy.leaseDuration = leaseDuration;
        copy.wait = wait;
        copy.grace = grace;
        copy.breaker = breaker;
        copy.group = group;
        copy.middleware = middleware;
        copy.withKnown = withKnown;
        copy.withDiff = withDiff;
        return copy;
    }

    /**
     * Sets the name of the worker, shown with its leases.
     *
     * @param name the name of the worker, shown with its leases; by default the host, the process and a random part
     * @return this
     */
    public WorkerOptions name(String name) {
        this.name = name;
        return this;
    }

    /**
     * Sets the number of handlers that run at once.
     *
     * @param concurrency the number of handlers that run at once
     * @return this
     */
    public WorkerOptions concurrency(int concurrency) {
        this.concurrency = Check.positive("concurrency", concurrency);
        return this;
    }

    /**
     * Sets the largest number of keys of one pop, up to 1,000.
     *
     * @param batch the largest number of keys of one pop, up to 1,000; by default the concurrency. Keys that wait for a handler are leased, too
     * @return this
     */
    public WorkerOptions batch(int batch) {
        this.batch = Check.positive("batch", batch);
        return this;
    }

    /**
     * Sets the length of the leases.
     *
     * @param leaseDuration the length of the leases; by default that of the queue. A lease is extended each time a third of it has passed
     * @return this
     */
    public WorkerOptions leaseDuration(Duration leaseDuration) {
        this.leaseDuration = Check.notNegative("leaseDuration", leaseDuration);
        return this;
    }

    /**
     * Sets how long a pop waits for keys, at most 55 s.
     *
     * @param wait how long a pop waits for keys, at most 55 s
     * @return this
     */
    public WorkerOptions wait(Duration wait) {
        this.wait = Check.notNegative("wait", wait);
        return this;
    }

    /**
     * Sets how long a worker that stops waits for running handlers.
     *
     * @param grace how long a worker that stops waits for running handlers
     * @return this
     */
    public WorkerOptions grace(Duration grace) {
        this.grace = Check.notNegative("grace", grace);
        return this;
    }

    /**
     * Sets the failures in a row, of different keys, that pause the worker, up to 1,000.
     *
     * @param breaker the failures in a row, of different keys, that pause the worker, up to 1,000; none by default
     * @return this
     */
    public WorkerOptions breaker(int breaker) {
        this.breaker = Check.notNegative("breaker", breaker);
        return this;
    }

    /**
     * Sets the only group whose keys are taken.
     *
     * @param group the only group whose keys are taken; the empty name is that of the group without a name
     * @return this
     */
    public WorkerOptions group(String group) {
        this.group = group;
        return this;
    }

    /**
     * Adds a function around the handler. It takes the next handler, and returns one that takes its place. The first that is added is the outermost.
     *
     * @param function the function
     * @return this
     */
    public WorkerOptions middleware(UnaryOperator<Handler> function) {
        List<UnaryOperator<Handler>> more = new ArrayList<>(middleware);
        more.add(Check.given("middleware", function));
        middleware = List.copyOf(more);
        return this;
    }

    /**
     * Sets whether each job has the object that was acknowledged last.
     *
     * @param withKnown false by default
     * @return this
     */
    public WorkerOptions withKnown(boolean withKnown) {
        this.withKnown = withKnown;
        return this;
    }

    /**
     * Sets whether each job has the difference from that object to the newest one.
     *
     * @param withDiff false by default
     * @return this
     */
    public WorkerOptions withDiff(boolean withDiff) {
        this.withDiff = withDiff;
        return this;
    }
}
