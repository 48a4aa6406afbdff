package example.deltaq.micrometer;

import example.deltaq.Handler;
import example.deltaq.Invoke;
import example.deltaq.Job;
import example.deltaq.ProblemException;
import example.deltaq.Worker;
import example.deltaq.WorkerStats;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import java.util.function.ToDoubleFunction;
import java.util.function.UnaryOperator;

/**
 * Measures clients and workers with Micrometer, which the application brings.
 *
 * <table>
 * <caption>The meters</caption>
 * <tr><th>name</th><th>kind</th><th>tags</th></tr>
 * <tr><td>{@code deltaq.calls}</td><td>timer</td><td>{@code queue}, {@code call}, {@code outcome}: ok, the code of a problem, or an
 * exception</td></tr>
 * <tr><td>{@code deltaq.jobs}</td><td>timer</td><td>{@code queue}, {@code outcome}: ack, nack, reject, release, done or lost</td></tr>
 * <tr><td>{@code deltaq.worker.leases}</td><td>counter</td><td>{@code queue}, {@code worker}, {@code outcome}</td></tr>
 * <tr><td>{@code deltaq.worker.pauses}</td><td>counter</td><td>{@code queue}, {@code worker}</td></tr>
 * </table>
 */
@SuppressWarnings("exports")
public final class Metrics {
    private Metrics() {}

    /**
     * Middleware of a client: the time of each call with its repeats. A pop includes its wait.
     *
     * @param registry has the meters
     * @return the middleware
     */
    public static UnaryOperator<Invoke> measureCalls(MeterRegistry registry) {
        return next -> call -> {
            Timer.Sample sample = Timer.start(registry);
            String outcome = "ok";
            try {
                next.invoke(call);
            } catch (ProblemException e) {
                outcome = e.code();
                throw e;
            } catch (RuntimeException | Error e) {
                outcome = e.getClass().getSimpleName();
                throw e;
            } finally {
                String name = call.name().isEmpty() ? call.method().toLowerCase(java.util.Locale.ROOT) : call.name();
                sample.stop(registry.timer("deltaq.calls", "queue", call.queue(), "call", name, "outcome", outcome));
            }
        };
    }

    /**
     * Middleware of a worker: the time of each handler.
     *
     * @param registry has the meters
     * @return the middleware
     */
    public static UnaryOperator<Handler> measureHandler(MeterRegistry registry) {
        return next -> job -> {
            Timer.Sample sample = Timer.start(registry);
            Throwable thrown = null;
            try {
                next.handle(job);
            } catch (Exception | Error e) {
                thrown = e;
                throw e;
            } finally {
                sample.stop(registry.timer("deltaq.jobs", "queue", job.queue(), "outcome", outcome(job, thrown)));
            }
        };
    }

    private static String outcome(Job job, Throwable thrown) {
        return job.isLeaseLost() ? "lost" : job.outcome(thrown);
    }

    /**
     * Counts what a worker has done.
     *
     * @param worker the worker
     * @param queue the name of its queue
     * @param registry has the meters
     */
    public static void bind(Worker worker, String queue, MeterRegistry registry) {
        count(worker, queue, "ack", registry, WorkerStats::acknowledged);
        count(worker, queue, "nack", registry, WorkerStats::nacked);
        count(worker, queue, "reject", registry, WorkerStats::rejected);
        count(worker, queue, "release", registry, WorkerStats::released);
        count(worker, queue, "lost", registry, WorkerStats::lost);
        FunctionCounter.builder("deltaq.worker.pauses", worker, each -> each.stats().pauses()).tag("queue", queue).tag("worker", worker.name())
                .register(registry);
    }

    private static void count(Worker worker, String queue, String outcome, MeterRegistry registry, ToDoubleFunction<WorkerStats> of) {
        FunctionCounter.builder("deltaq.worker.leases", worker, each -> of.applyAsDouble(each.stats())).tag("queue", queue).tag("worker", worker.name())
                .tag("outcome", outcome).register(registry);
    }
}
