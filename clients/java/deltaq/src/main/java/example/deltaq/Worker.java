package example.deltaq;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Takes keys from a queue, and runs a handler for each.
 *
 * <pre>{@code
 * Worker worker = new Worker(offers, job -> {
 *     if (job.isDeleted()) {
 *         shop.remove(job.key());
 *     } else {
 *         shop.store(job.object(Price.class), job.token());
 *     }
 * }, new WorkerOptions().concurrency(8));
 * Runtime.getRuntime().addShutdownHook(new Thread(worker::close));
 * worker.run();
 * }</pre>
 *
 * <p>A worker extends the leases of its keys while handlers run, and goes on after errors that may pass. Delivery is at least once.
 */
public final class Worker implements AutoCloseable {
    final Queue queue;
    final Handler handler;
    final WorkerOptions options;
    final AtomicLong acknowledged = new AtomicLong();
    final AtomicLong nacked = new AtomicLong();
    final AtomicLong rejected = new AtomicLong();
    final AtomicLong released = new AtomicLong();
    final AtomicLong lost = new AtomicLong();
    final AtomicLong pauses = new AtomicLong();

    private final AtomicBoolean hasBegun = new AtomicBoolean();
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean isClosed;
    private final WorkerRun run;

    /**
     * A worker with the default options. Nothing is sent before it runs. A handler that returns a future is {@link Handler#async}.
     *
     * @param queue the queue
     * @param handler works on a key
     */
    public Worker(Queue queue, Handler handler) {
        this(queue, handler, new WorkerOptions());
    }

    /**
     * A worker. Nothing is sent before it runs.
     *
     * @param queue the queue
     * @param handler works on a key
     * @param options the options, which are copied
     * @throws IllegalArgumentException if there is no queue or no handler
     */
    public Worker(Queue queue, Handler handler, WorkerOptions options) {
        this.queue = Check.given("queue", queue, "a queue, such as client.queue(\"orders\")");
        Check.given("handler", handler, "a function, such as job -> store(job.object())");
        this.options = Check.given("options", options).copy();
        int batch = this.options.batch == null ? this.options.concurrency : this.options.batch;
        this.options.batch = Math.min(batch, Leases.BATCH_MAX);
        this.options.breaker = this.options.breaker == null ? 0 : Math.min(this.options.breaker, Breaker.LIMIT_MAX);
        if (this.options.name == null) {
            this.options.name = host() + "-" + ProcessHandle.current().pid() + "-" + Queue.newId().substring(0, 6);
        }
        this.handler = Transport.wrap(handler, this.options.middleware);
        this.run = new WorkerRun(this);
    }

    private static String host() {
        try {
            return InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            return "java";
        }
    }

    /**
     * The name of the worker.
     *
     * @return the name
     */
    public String name() {
        return options.name;
    }

    /**
     * What the worker has done so far.
     *
     * @return the numbers
     */
    public WorkerStats stats() {
        return new WorkerStats(acknowledged.get(), nacked.get(), rejected.get(), released.get(), lost.get(), pauses.get());
    }

    /**
     * Works until {@link #stop} or {@link #close} is called, the thread is interrupted, or the queue is closed and drained. Calls with errors that may pass,
     * and pops from a queue that does not exist yet, are repeated without limit. A worker runs once, and not after {@link #close}.
     *
     * <p>At the end no handler begins. Keys whose handlers have not begun are released. Running handlers may finish within {@link WorkerOptions#grace}, and
     * their leases are extended in the meantime. If the client is closed first, the worker ends too, but handlers are interrupted at once, and keys are
     * delivered again only when their leases have expired.
     *
     * @throws DeltaqException a final error, such as that of an unknown token
     */
    public void run() {
        if (hasBegun.getAndSet(true)) {
            if (isClosed) {
                return;
            }
            throw new IllegalStateException("a worker runs once");
        }
        try {
            run.work();
        } finally {
            ended.countDown();
        }
    }

    /**
     * Runs the worker in a thread of its own, which is a daemon: a program that does nothing else ends.
     *
     * @return completes when the worker has ended, with an exception after a final error, which is also logged
     */
    public CompletableFuture<Void> start() {
        return Threads.start(this::run, queue.transport.log, "the worker " + name() + " of the queue " + queue.name());
    }

    /** Lets the worker end, and does not wait for it. */
    public void stop() {
        run.askToStop();
    }

    /**
     * Lets the worker end, and waits for its end: at most for {@link WorkerOptions#grace} and 5 s for its last calls. A handler calls {@link #stop} instead,
     * because this would wait for the handler itself.
     */
    @Override
    public void close() {
        isClosed = true;
        stop();
        if (!hasBegun.getAndSet(true)) {
            ended.countDown();
        }
        try {
            ended.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** Counts a result. */
    void count(Settled settled) {
        if (settled.isStale()) {
            lost.incrementAndGet();
            warn("a lease had ended before its outcome was sent: lease " + settled.leaseId() + ", as " + settled.as() + ", outcome " + settled.outcome());
            return;
        }
        switch (settled.as()) {
            case SettleAs.ACK, SettleAs.DONE -> acknowledged.incrementAndGet();
            case SettleAs.NACK -> nacked.incrementAndGet();
            case SettleAs.REJECT -> rejected.incrementAndGet();
            case SettleAs.RELEASE -> released.incrementAndGet();
            default -> {}
        }
    }

    /** Logs a warning with the queue. */
    void warn(String text) {
        queue.transport.log.log(System.Logger.Level.WARNING, "deltaq: " + text + " (queue " + queue.name() + ")");
    }
}
