package example.deltaq.spring;

import example.deltaq.WorkerOptions;

/** Changes the options of the workers of {@link DeltaqListener} methods. */
@FunctionalInterface
public interface DeltaqWorkerCustomizer {
    /**
     * Changes the options of a worker.
     *
     * @param queue the name of its queue
     * @param options the options
     */
    void customize(String queue, WorkerOptions options);
}
