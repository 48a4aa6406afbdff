package example.deltaq;

import java.lang.reflect.InvocationTargetException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;

/** Threads of workers and informers: virtual ones where there are, since Java 21. */
final class Threads {
    private static final AtomicInteger COUNT = new AtomicInteger();

    private Threads() {}

    /** An executor that runs each task in a thread of its own. */
    static ExecutorService perTask() {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (NoSuchMethodException | IllegalAccessException | InvocationTargetException e) {
            return Executors.newCachedThreadPool(Threads::daemon);
        }
    }

    /** Runs a task in a daemon thread. The result completes when the task has ended, with what the task has thrown, which is also logged. */
    static CompletableFuture<Void> start(Runnable task, System.Logger log, String what) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        daemon(() -> {
            try {
                task.run();
                end.complete(null);
            } catch (RuntimeException | Error e) {
                // Many programs do not look at the result.
                Failures.log(log, System.Logger.Level.ERROR, "deltaq: " + what + " has ended with an error: " + Outcome.text(e), e);
                end.completeExceptionally(e);
            }
        }).start();
        return end;
    }

    static Thread daemon(Runnable task) {
        Thread thread = new Thread(task, "deltaq-" + COUNT.incrementAndGet());
        thread.setDaemon(true);
        return thread;
    }
}
