package example.deltaq;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Keeps a copy of a view of a queue in memory, and calls handlers for its changes.
 *
 * <pre>{@code
 * Informer informer = new Informer(cities, new InformerOptions().index("by_country", Indexer.pointer("/country")));
 * informer.start();
 * Informer.waitForCacheSync(Duration.ofSeconds(30), informer);
 * informer.store().byIndex("by_country", "it").forEach(city -> System.out.println(city.key()));
 * }</pre>
 *
 * <p>Handlers are called one at a time, in the order of the changes. While a handler runs, the informer reads nothing; several changes of a key then arrive as
 * one, with the newest state. An exception of a handler is logged.
 */
public final class Informer implements AutoCloseable, Synced {
    /** A handler of an informer. */
    public static final class Registration implements Synced {
        private final InformerHandler handler;
        private final CompletableFuture<Void> synced = new CompletableFuture<>();

        private Registration(InformerHandler handler) {
            this.handler = handler;
        }

        /** Completes when the handler was called for every object of its first list. */
        @Override
        public CompletableFuture<Void> synced() {
            return synced.copy();
        }
    }

    private final Queue queue;
    final InformerOptions options;
    private final Cache cache;
    private final CompletableFuture<Void> synced = new CompletableFuture<>();
    private final ReentrantLock lock = new ReentrantLock();
    /** Handlers that the running informer has not seen yet. */
    private final List<Registration> added = new ArrayList<>();
    /** Handlers that belong to the thread of {@link #run}. */
    private final List<Registration> registrations = new ArrayList<>();
    private final AtomicBoolean hasBegun = new AtomicBoolean();
    private final CountDownLatch ended = new CountDownLatch(1);
    private final Scope scope;
    /** The thread of {@link #run}; null before it. */
    private volatile Thread runner;
    /** What the thread of the informer is to do next. There is at most one row of a watch. */
    private final LinkedBlockingQueue<Runnable> events = new LinkedBlockingQueue<>();

    /**
     * An informer with the default options. Nothing is sent before it runs.
     *
     * @param queue the queue
     */
    public Informer(Queue queue) {
        this(queue, new InformerOptions());
    }

    /**
     * An informer. Nothing is sent before it runs.
     *
     * @param queue the queue
     * @param options the options, which are copied
     */
    public Informer(Queue queue, InformerOptions options) {
        this.queue = Check.given("queue", queue, "a queue, such as client.queue(\"orders\")");
        this.options = Check.given("options", options).copy();
        this.cache = new Cache(new Store(this.options.indexes));
        this.scope = Scope.within(queue.transport.scope);
    }

    /**
     * The store. It is empty until the informer has synced.
     *
     * @return the store
     */
    public Store store() {
        return cache.store;
    }

    /** Completes when the store has had a complete list. */
    @Override
    public CompletableFuture<Void> synced() {
        return synced.copy();
    }

    /**
     * Adds a handler, also while the informer runs: it gets an add for each object of the store.
     *
     * @param handler the handler
     * @return says when the handler has seen the first list
     */
    public Registration addHandler(InformerHandler handler) {
        Registration registration = new Registration(Check.given("handler", handler));
        lock.lock();
        try {
            added.add(registration);
        } finally {
            lock.unlock();
        }
        events.add(this::takeAdded);
        return registration;
    }

    /**
     * Waits until all of these informers and handlers have synced.
     *
     * @param patience how long to wait
     * @param all the informers and handlers
     * @return whether they have
     * @throws CancelledException if the thread is interrupted
     */
    public static boolean waitForCacheSync(Duration patience, Synced... all) {
        long end = Clock.after(Clock.now(), patience);
        for (Synced each : all) {
            try {
                each.synced().get(Math.max(end - Clock.now(), 0), TimeUnit.NANOSECONDS);
            } catch (TimeoutException e) {
                return false;
            } catch (InterruptedException e) {
                throw Scope.interrupted(null);
            } catch (ExecutionException e) {
                throw new IllegalStateException(e);
            }
        }
        return true;
    }

    /**
     * Runs the informer in a thread of its own, which is a daemon: a program that does nothing else ends.
     *
     * @return completes when the informer has ended, with an exception after a final error, which is also logged
     */
    public CompletableFuture<Void> start() {
        return Threads.start(this::run, queue.transport.log, "an informer of the queue " + queue.name());
    }

    /** Ends the informer, and waits for its end, except in one of its handlers. The store keeps its objects. */
    @Override
    public void close() {
        scope.cancel();
        if (!hasBegun.getAndSet(true)) {
            scope.close();
            ended.countDown();
        }
        if (Thread.currentThread() == runner) {
            return;
        }
        try {
            ended.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Keeps the store until {@link #close} is called or the thread is interrupted. It lists and watches, goes on from its last version after a lost
     * connection, and lists again if the server no longer knows what was deleted since. An informer runs once.
     *
     * @throws DeltaqException a final error, such as that of an unknown token
     */
    public void run() {
        if (hasBegun.getAndSet(true)) {
            if (scope.isCancelled()) {
                return;
            }
            throw new IllegalStateException("an informer runs once");
        }
        runner = Thread.currentThread();
        try {
            keep();
        } finally {
            scope.cancel();
            scope.close();
            ended.countDown();
        }
    }

    private void keep() {
        Watching watching = new Watching(cache, queue.transport.retry);
        Request watch = queue.call("GET", "/watch");
        Duration pause = Duration.ZERO;
        while (true) {
            RuntimeException failure = watch(pause, watching, watch);
            if (scope.isCancelled() || failure instanceof CancelledException) {
                return;
            }
            pause = watching.pauseAfter(failure);
            if (pause == null) {
                throw failure;
            }
            if (Failures.is(failure, Codes.EXPIRED)) {
                // This is usual when the server keeps few changes, and the new list has everything.
                queue.transport.log.log(System.Logger.Level.DEBUG, "deltaq: an informer lists again (queue " + queue.name() + ")", failure);
            } else if (failure != null) {
                queue.transport.rows.failed(watch, "", failure);
            }
        }
    }

    private long resyncAt = Clock.FAR;

    /** Applies the rows of one watch, which begins after a pause, until its end, and returns its failure. It calls all handlers. */
    private RuntimeException watch(Duration pause, Watching watching, Request watch) {
        if (resyncAt == Clock.FAR && options.resync != null && !options.resync.isZero()) {
            resyncAt = Clock.after(Clock.now(), options.resync);
        }
        WatchOptions given = new WatchOptions();
        given.view = options.view;
        given.resourceVersion = cache.begin();
        given.prefix = options.prefix;
        given.shard = options.shard;
        given.bookmark = options.bookmark;
        // A server that has begun the stream answers, also if nothing changes for a while.
        given.opened = () -> queue.transport.rows.answered(watch);
        Scope within = Scope.within(scope);
        RuntimeException[] failure = {null};
        boolean[] hasEnded = {false};
        Thread reader = Threads.daemon(() -> {
            RuntimeException end = null;
            try {
                within.sleep(pause, null);
                new Watch(queue, given).run(within, row -> offer(() -> {
                    watching.received();
                    if (failure[0] == null) {
                        failure[0] = tryTo(row);
                        if (failure[0] != null) {
                            within.cancel();
                        }
                    }
                }));
            } catch (RuntimeException | Error e) {
                end = WorkerCalls.failure(e);
            }
            RuntimeException last = end;
            offer(() -> {
                hasEnded[0] = true;
                failure[0] = failure[0] == null ? last : failure[0];
            });
        });
        reader.start();
        boolean isInterrupted = false;
        while (!hasEnded[0]) {
            try {
                attend();
            } catch (InterruptedException e) {
                isInterrupted = true;
                scope.cancel();
            }
        }
        within.close();
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
        return failure[0];
    }

    /** Gives the thread of the informer something to do, and waits until it is done: while a handler runs, nothing is read. */
    private void offer(Runnable event) {
        CountDownLatch isDone = new CountDownLatch(1);
        events.add(() -> {
            try {
                event.run();
            } finally {
                isDone.countDown();
            }
        });
        boolean isInterrupted = false;
        while (true) {
            try {
                isDone.await();
                break;
            } catch (InterruptedException e) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private RuntimeException tryTo(WatchRow row) {
        try {
            apply(row);
            return null;
        } catch (RuntimeException | Error e) {
            return WorkerCalls.failure(e);
        }
    }

    /** Waits for a row, a resync or a handler. */
    private void attend() throws InterruptedException {
        Runnable event = events.poll(Math.max(resyncAt - Clock.now(), 0), TimeUnit.NANOSECONDS);
        if (event != null) {
            event.run();
        }
        if (Clock.now() >= resyncAt) {
            resyncAt = Clock.after(Clock.now(), options.resync);
            resync();
        }
    }

    /** Applies a row, and calls the handlers. */
    private void apply(WatchRow row) {
        takeAdded();
        boolean hadSynced = cache.hasSynced();
        cache.apply(row, change -> registrations.forEach(registration -> call(registration, change)));
        if (cache.hasSynced() && !hadSynced) {
            registrations.forEach(registration -> registration.synced.complete(null));
            synced.complete(null);
        }
    }

    /** Begins to call handlers that were added. If the store has synced, they get an add for each object first. */
    private void takeAdded() {
        List<Registration> taken;
        lock.lock();
        try {
            taken = List.copyOf(added);
            added.clear();
        } finally {
            lock.unlock();
        }
        for (Registration registration : taken) {
            if (cache.hasSynced()) {
                cache.store.list().forEach(object -> call(registration, new Cache.Change(null, object, true, false)));
                registration.synced.complete(null);
            }
            registrations.add(registration);
        }
    }

    private void resync() {
        List<QueueObject> objects = cache.store.list();
        for (Registration registration : registrations) {
            objects.forEach(object -> call(registration, new Cache.Change(object, object, false, false)));
        }
    }

    /** Calls a handler. An exception is logged. */
    private void call(Registration registration, Cache.Change change) {
        try {
            if (change.old() == null) {
                registration.handler.onAdd(change.now(), change.isInInitialList());
            } else if (change.now() == null) {
                registration.handler.onDelete(change.old(), change.isFinalStateUnknown());
            } else {
                registration.handler.onUpdate(change.old(), change.now());
            }
        } catch (Throwable e) {
            String key = (change.now() == null ? change.old() : change.now()).key();
            String line = "deltaq: a handler of an informer has failed: " + Outcome.text(e) + " (queue " + queue.name() + ", key " + key + ")";
            Failures.log(queue.transport.log, System.Logger.Level.ERROR, line, e);
        }
    }
}
