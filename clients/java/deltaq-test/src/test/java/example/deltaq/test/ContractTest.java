package example.deltaq.test;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.ObjectMapper;
import example.deltaq.Client;
import example.deltaq.Codes;
import example.deltaq.DeltaCall;
import example.deltaq.DeltasOptions;
import example.deltaq.ExtendOptions;
import example.deltaq.GroupBy;
import example.deltaq.Groups;
import example.deltaq.Handler;
import example.deltaq.Hold;
import example.deltaq.Informer;
import example.deltaq.InformerHandler;
import example.deltaq.InformerOptions;
import example.deltaq.Item;
import example.deltaq.ItemsOptions;
import example.deltaq.Json;
import example.deltaq.KeyPart;
import example.deltaq.ListOptions;
import example.deltaq.Mode;
import example.deltaq.NackOptions;
import example.deltaq.PatchOptions;
import example.deltaq.PopOptions;
import example.deltaq.Popped;
import example.deltaq.PoppedItem;
import example.deltaq.ProblemException;
import example.deltaq.ProduceOptions;
import example.deltaq.PutOptions;
import example.deltaq.Queue;
import example.deltaq.QueueObject;
import example.deltaq.QueueSettings;
import example.deltaq.Reflector;
import example.deltaq.Reject;
import example.deltaq.ReplaceOptions;
import example.deltaq.SeedCall;
import example.deltaq.Selection;
import example.deltaq.Settle;
import example.deltaq.SettledList;
import example.deltaq.SyncedOptions;
import example.deltaq.TaggedSettings;
import example.deltaq.ViewOptions;
import example.deltaq.WatchOptions;
import example.deltaq.Worker;
import example.deltaq.WorkerOptions;
import example.deltaq.WorkerStatus;
import java.math.BigDecimal;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.ExtendWith;

/** Every call against a real server. */
@ExtendWith(DeltaqExtension.class)
@Timeout(60)
class ContractTest {
    record Price(String key, BigDecimal price) {}

    /** An exception that can't be printed. */
    private static final class Endless extends RuntimeException {
        private static final long serialVersionUID = 1;

        @Override
        public String toString() {
            return toString();
        }
    }

    private static PopOptions ten() {
        return new PopOptions().max(10).wait(Duration.ofSeconds(5)).worker("tester");
    }

    private static String[] leases(Popped popped) {
        return popped.items().stream().map(item -> item.lease().id()).toArray(String[]::new);
    }

    @Test
    void theServerDescribesItself(Client client) throws Exception {
        client.alive();
        client.ready();
        assertEquals("deltaq", client.info().name());
        assertEquals(1024, client.info().limits().get("key_bytes"));
        assertEquals(List.of(), client.nodes().nodes());
        assertNotNull(client.nodes().self().version());
        assertEquals("deltaq", client.openApi().as(text -> new ObjectMapper().readTree(text).at("/info/title").asText()));
        assertTrue(client.problemPage(Codes.QUEUE_FULL).contains("queue-full"));
    }

    @Test
    void settings(Queue queue, Client client) {
        QueueSettings wanted = QueueSettings.builder().lease(Duration.ofMinutes(1)).maxFailures(3).key(List.of(KeyPart.of("/sku"))).build();
        assertNull(queue.planSettings(wanted).current());
        TaggedSettings seen = queue.putSettings(wanted, new PutOptions().ifAbsent(true));
        assertEquals(3, seen.settings().maxFailures());
        TaggedSettings changed = queue.patchSettings(QueueSettings.builder().lease(Duration.ofMinutes(2)).build(), new PatchOptions().ifMatch(seen.etag()).reset("max_failures"));
        assertEquals(Duration.ofMinutes(2), changed.settings().lease());
        assertEquals(20, changed.settings().maxFailures());
        ProblemException refused = assertThrows(ProblemException.class, () -> queue.patchSettings(wanted, new PatchOptions().ifMatch(seen.etag())));
        assertTrue(refused.is(Codes.PRECONDITION_FAILED));
        assertEquals(changed.settings(), queue.settings().settings());
        // What is read can be sent back.
        assertEquals(changed.settings(), queue.putSettings(queue.settings().settings(), new PutOptions().ifMatch(queue.settings().etag())).settings());
        assertEquals(queue.name(), queue.get().name());
        assertTrue(client.queues().stream().anyMatch(each -> each.name().equals(queue.name())));
        assertEquals(1, client.queuesPage(queue.name(), new ListOptions().limit(5)).items().size());
        queue.deleteQueue();
        assertTrue(assertThrows(ProblemException.class, queue::get).is(Codes.QUEUE_NOT_FOUND));
    }

    @Test
    void produceAndRead(Queue queue) {
        queue.add(Json.of("{\"key\":\"big\",\"n\":9007199254740993,\"d\":1.10}"));
        queue.add(new Price("a", new BigDecimal("1.10")), new ProduceOptions().source("erp").sequence(1));
        assertTrue(queue.add(new Price("a", BigDecimal.ONE), new ProduceOptions().source("erp").sequence(1)).duplicate());
        assertEquals(2, queue.update(List.of(new Price("b", BigDecimal.ONE), Map.of("key", "c"))).queued());
        assertEquals(1, queue.update(new ObjectMapper().createObjectNode().put("key", "tree")).queued());
        assertEquals("{\"key\":\"big\",\"n\":9007199254740993,\"d\":1.10}", queue.latestObject("big").object().object().text());
        assertEquals(new BigDecimal("1.10"), queue.latestObject("a").object().object(Price.class).price());
        assertEquals(List.of("a", "b", "big", "c", "tree"), queue.latest(new ViewOptions().limit(2)).stream().map(QueueObject::key).toList());
        assertEquals(2, queue.latest(new ViewOptions().limit(2)).page().items().size());
        String tag = queue.latestObject("b").etag();
        queue.update(new Price("b", BigDecimal.TEN), new ProduceOptions().ifMatch(tag));
        ProblemException moved = assertThrows(ProblemException.class, () -> queue.update(new Price("b", BigDecimal.TEN), new ProduceOptions().ifMatch(tag)));
        assertEquals("b", moved.problem().key());
        queue.delete(Map.of("key", "c"));
        assertEquals(1, queue.deleteKey("tree", new ProduceOptions().traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")).queued());
        assertEquals(2, queue.deltas(List.of(DeltaCall.added(Map.of("key", "e")), DeltaCall.deleted("e").withSource("s"))).queued());
        assertEquals(1, queue.deltas(List.of(DeltaCall.added(Map.of("none", 1)), DeltaCall.updated(Map.of("key", "f"))), new DeltasOptions().skipInvalid(true)).invalid());
        assertEquals(0, queue.deltas(List.of()).queued());
        Item item = queue.item("tree");
        assertEquals("Deleted", item.deltas().get(item.deltas().size() - 1).type());
        assertEquals("ready", queue.items(new ItemsOptions().key("a").states("ready", "delayed")).page().items().get(0).state());
        assertEquals(List.of(), queue.history("a").toList(), "a server without a journal has no history");
        assertTrue(List.of("next", "queued").contains(queue.explain("a").reason()));
        assertEquals(1L, queue.sources().stream().filter(each -> each.source().equals("erp")).findFirst().orElseThrow().sequence());
        queue.reportSource("erp", "late");
        queue.seenSource("erp");
        assertEquals("late", queue.sources().stream().filter(each -> each.source().equals("erp")).findFirst().orElseThrow().problem().detail());
        assertEquals(Duration.ofMinutes(15), queue.setStaleAfter("erp", Duration.ofMinutes(15)).staleAfter());
        assertNull(queue.setStaleAfter("erp", null).staleAfter());
        assertEquals(5L, queue.renumberSource("erp", 5L).sequence());
        assertNull(queue.renumberSource("erp", null).sequence());
        assertTrue(assertThrows(ProblemException.class, () -> queue.knownObject("a")).is(Codes.KEY_NOT_FOUND));
        assertFalse(queue.synced(new SyncedOptions().now(true)).reached());
    }

    @Test
    void replace(Queue queue) {
        List<Price> list = List.of(new Price("a", BigDecimal.ONE), new Price("b", BigDecimal.TEN));
        assertEquals(2, queue.replace(list, new ReplaceOptions().source("erp")).replaced());
        assertEquals(1, queue.replace(list.subList(0, 1), new ReplaceOptions().source("erp").onlyChanged(true).dryRun(true)).deleted());
        assertEquals(2, queue.replace(list, new ReplaceOptions().source("erp").onlyChanged(true)).unchanged());
        ProblemException refused = assertThrows(ProblemException.class, () -> queue.replace(List.of(), new ReplaceOptions().source("erp")));
        assertTrue(refused.is(Codes.MASS_DELETE));
        assertEquals(2, queue.replace(List.of(), new ReplaceOptions().source("erp").allowEmpty(true)).deleted());
        List<Object> mixed = new ArrayList<>(Collections.nCopies(1, new Object()));
        mixed.addAll(list);
        assertTrue(queue.replace(mixed, new ReplaceOptions().skipInvalid(true)).invalidObjects().get(0).detail().contains("Object"));
        assertThrows(IllegalArgumentException.class, () -> queue.replace(null));
    }

    @Test
    void leases(Queue queue) {
        queue.putSettings(QueueSettings.builder().groups(null).maxFailures(5).build());
        queue.add(List.of(Map.of("key", "a"), Map.of("key", "b"), Map.of("key", "c"), Map.of("key", "d"), Map.of("key", "e")));
        Popped popped = queue.pop(ten());
        assertEquals(5, popped.items().size());
        PoppedItem first = popped.items().get(0);
        assertEquals("tester", first.lease().worker());
        assertFalse(first.isDeleted());
        assertEquals("{\"key\":\"a\"}", first.object().text());
        assertEquals("tester", queue.workers().iterator().next().worker());
        String[] ids = leases(popped);
        SettledList extended = queue.extend(List.of(ids), new ExtendOptions().leaseDuration(Duration.ofMinutes(2)));
        assertTrue(extended.settled().get(0).expiresInMs() > 110_000);
        queue.update(Map.of("key", "a", "price", 1));
        assertEquals(1L, queue.extend(List.of(ids[0]), new ExtendOptions().untilChanged(Duration.ofSeconds(5))).settled().get(0).pendingDeltas());
        assertEquals("ok", queue.ack(ids[0]).settled().get(0).result());
        assertEquals("repeated", queue.ack(ids[0]).settled().get(0).result());
        assertEquals(1L, queue.nack(List.of(ids[1]), new NackOptions().delay(Duration.ofHours(1)).error("away").floor(true)).settled().get(0).failures());
        assertTrue(queue.reject(List.of(ids[2]), "wrong").settled().get(0).parked());
        assertEquals(1, queue.settle(List.of(Settle.release(ids[3]), Settle.ack(ids[4]))).settled().stream().filter(each -> each.as().equals("ack")).count());
        assertEquals(1, queue.settle(List.of(Settle.ack(ids[2]))).stale(), "a lease that had ended is no error, also if it is the only one");
        assertEquals("wrong", queue.parkedErrors(new ListOptions()).items().get(0).error());
        assertEquals(1, queue.redrive(Selection.error("wrong").expectedCount(1)));
        assertEquals(1, queue.promote(Selection.keys("b")));
        assertEquals(1, queue.forget("b"));
        assertEquals(0, queue.discard(Selection.all()));
        Popped more = queue.pop(ten().wait(Duration.ZERO));
        assertEquals(List.of("a", "b", "c", "d"), more.items().stream().map(PoppedItem::key).sorted().toList());
        WorkerStatus tester = queue.workers().iterator().next();
        assertEquals(List.of(2L, 2L), List.of(tester.recentAcks(), tester.recentFailures()));
        assertNotNull(queue.settle(List.of(Settle.release(leases(more)[0]).withHold(new Hold(Hold.QUEUE, Duration.ofMinutes(1))))).settled().get(0).heldUntil());
        assertNotNull(queue.pop().heldUntil());
        queue.resume();
        queue.release(leases(more));
        queue.pause();
        assertTrue(queue.status().paused());
        assertTrue(queue.purge().keys() >= 1);
        queue.resume();
        queue.close();
        assertTrue(assertThrows(ProblemException.class, queue::pop).is(Codes.QUEUE_CLOSED));
        assertFalse(queue.reopen().status().closed());
    }

    @Test
    void keysGroupsAndIndexes(Client client, Queue queue) {
        Queue keys = client.queue(queue.name() + "-keys");
        keys.putSettings(QueueSettings.builder().mode(Mode.KEYS).build());
        assertEquals(1, keys.addKey("a").queued());
        assertNotNull(keys.addKey("b", new ProduceOptions().rateLimited(true)).keys().get(0).dueAt());
        PoppedItem item = keys.pop().items().get(0);
        assertNull(item.object());
        assertEquals("ok", keys.done(List.of(item.lease().id()), Duration.ofHours(1)).settled().get(0).result());
        queue.putSettings(QueueSettings.builder().indexes(Map.of("by_city", "/city")).groups(Groups.of(new GroupBy("/city", null))).build());
        queue.seed(List.of(SeedCall.of(Map.of("key", "a", "city", "Rome")), SeedCall.of(Map.of("key", "b", "city", "Oslo"))));
        assertEquals(List.of("a"), queue.known(new ViewOptions().index("by_city").value("Rome").wait(Duration.ofSeconds(5))).stream().map(QueueObject::key).toList());
        assertEquals("Oslo", queue.indexValues("by_city", "O").page().items().get(0).value());
        assertEquals("/city", queue.indexes().iterator().next().pointer());
        assertEquals(2, queue.resync().queued());
        assertTrue(queue.groups(null).groups().stream().anyMatch(group -> "Rome".equals(group.name())));
        assertTrue(queue.pauseGroup("Rome").name().startsWith("keys"));
        assertEquals("b", queue.pop(new PopOptions().group("Oslo")).items().get(0).key());
        queue.resumeGroup("Rome");
    }

    @Test
    void aWorkerRunsItsHandlersWithMiddleware(Queue queue) throws Exception {
        queue.add(List.of(new Price("a", BigDecimal.ONE), new Price("b", new BigDecimal("-1"))));
        queue.close();
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        WorkerOptions options = new WorkerOptions().concurrency(2).withKnown(true).middleware(next -> job -> {
            seen.add("before " + job.key());
            next.handle(job);
        });
        Worker worker = new Worker(queue, job -> {
            if (job.object(Price.class).price().signum() < 0) {
                throw new Reject("negative");
            }
            seen.add("store " + job.key() + " " + (job.token() > 0));
        }, options);
        worker.start().get(30, TimeUnit.SECONDS);
        Collections.sort(seen);
        assertEquals(List.of("before a", "before b", "store a true"), seen);
        assertEquals(1, worker.stats().acknowledged());
        assertEquals(1, worker.stats().rejected());
        assertEquals("negative", queue.items(new ItemsOptions().states("parked")).iterator().next().lastError());
        assertThrows(IllegalStateException.class, worker::run);
    }

    @Test
    void anAsynchronousHandlerIsAwaited(Queue queue) throws Exception {
        queue.add(List.of(Map.of("key", "good"), Map.of("key", "bad"), Map.of("key", "none")));
        queue.close();
        CompletableFuture<Void> work = new CompletableFuture<>();
        Worker worker = new Worker(queue, Handler.async(job -> switch (job.key()) {
            case "good" -> work;
            case "bad" -> CompletableFuture.failedFuture(new Reject("bad"));
            default -> null;
        }), new WorkerOptions().concurrency(3));
        CompletableFuture<Void> end = worker.start();
        // The other keys end first. The last one is leased until its future completes.
        while (queue.status().parked() < 1 || queue.item("none").failures() < 1) {
            Thread.sleep(10);
        }
        assertEquals("leased", queue.item("good").state());
        work.complete(null);
        while (queue.status().known() < 1 || queue.status().leased() > 0) {
            Thread.sleep(10);
        }
        assertTrue(queue.item("none").lastError().contains("null instead of a CompletableFuture"));
        worker.close();
        end.get(10, TimeUnit.SECONDS);
        assertEquals(0, queue.status().leased());
    }

    @Test
    void aWorkerThatIsClosedInterruptsAHandlerAfterItsGrace(Queue queue) throws Exception {
        queue.add(Map.of("key", "a"));
        CountDownLatch begun = new CountDownLatch(1);
        Worker worker = new Worker(queue, job -> {
            begun.countDown();
            Thread.sleep(60_000);
        }, new WorkerOptions().grace(Duration.ofMillis(100)));
        CompletableFuture<Void> end = worker.start();
        begun.await();
        worker.close();
        end.get(1, TimeUnit.SECONDS);
        Item item = queue.item("a");
        assertEquals("ready", item.state());
        assertEquals(0, item.failures(), "the worker has ended the handler, so the key has not failed");
    }

    @Test
    void aWorkerThatIsInterruptedEnds(Queue queue) throws Exception {
        queue.add(Map.of("key", "a"));
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        Worker worker = new Worker(queue, job -> begun.countDown());
        Thread thread = new Thread(() -> {
            worker.run();
            if (Thread.currentThread().isInterrupted()) {
                ended.countDown();
            }
        });
        thread.start();
        begun.await();
        thread.interrupt();
        assertTrue(ended.await(10, TimeUnit.SECONDS));
        assertEquals(0, queue.status().leased());
    }

    @Test
    void aWorkerWhoseKeysFailPauses(Queue queue) throws Exception {
        queue.add(List.of(Map.of("key", "a"), Map.of("key", "b"), Map.of("key", "c")));
        AtomicInteger begun = new AtomicInteger();
        try (Worker worker = new Worker(queue, job -> {
            begun.incrementAndGet();
            throw new IllegalStateException("the target is away");
        }, new WorkerOptions().breaker(2).wait(Duration.ofMillis(100)))) {
            worker.start();
            while (worker.stats().pauses() == 0) {
                Thread.sleep(10);
            }
            assertEquals(2, begun.get());
        }
    }

    @Test
    void aWorkerGoesOnAfterErrorsOfEveryKind(Queue queue) throws Exception {
        queue.add(List.of(Map.of("key", "a"), Map.of("key", "b"), Map.of("key", "c")));
        CountDownLatch done = new CountDownLatch(1);
        try (Worker worker = new Worker(queue, job -> {
            if (job.key().equals("a")) {
                throw new StackOverflowError();
            }
            if (job.key().equals("b")) {
                throw new Endless();
            }
            done.countDown();
        })) {
            worker.start();
            assertTrue(done.await(30, TimeUnit.SECONDS));
        }
        assertTrue(queue.item("a").lastError().contains("StackOverflowError"));
        assertEquals(Endless.class.getName(), queue.item("b").lastError());
    }

    @Test
    void theEndOfAClientEndsItsWorkers(DeltaqServer server, Queue queue) throws Exception {
        queue.add(Map.of("key", "a"));
        CountDownLatch begun = new CountDownLatch(1);
        CountDownLatch isInterrupted = new CountDownLatch(1);
        Client closed = server.client();
        Worker worker = new Worker(closed.queue(queue.name()), job -> {
            begun.countDown();
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException e) {
                isInterrupted.countDown();
                throw e;
            }
        }, new WorkerOptions().grace(Duration.ofHours(1)));
        CompletableFuture<Void> busy = worker.start();
        CompletableFuture<Void> idle = new Worker(closed.queue(queue.name() + "-other"), job -> {}).start();
        begun.await();
        closed.close();
        busy.get();
        idle.get();
        isInterrupted.await();
    }

    @Test
    void anInformerIsClosedByItsHandler(Queue queue) throws Exception {
        queue.add(Map.of("key", "a"));
        Informer informer = new Informer(queue);
        informer.addHandler(new InformerHandler() {
            @Override
            public void onAdd(QueueObject object, boolean isInInitialList) {
                informer.close();
            }
        });
        informer.start().get();
        assertEquals(1, informer.store().size());
    }

    @Test
    void anInformerEndsWithTheErrorOfAnIndex(Queue queue) {
        queue.add(Map.of("key", "a"));
        Informer informer = new Informer(queue, new InformerOptions().index("wrong", object -> {
            throw new StackOverflowError();
        }));
        Exception failure = assertThrows(IllegalStateException.class, informer::run);
        assertTrue(failure.getCause() instanceof StackOverflowError);
    }

    @Test
    void anInformerKeepsAStore(Queue queue) throws Exception {
        queue.add(List.of(Map.of("key", "rome", "country", "it"), Map.of("key", "oslo", "country", "no")));
        List<String> events = Collections.synchronizedList(new ArrayList<>());
        InformerOptions options = new InformerOptions().index("by_country", example.deltaq.Indexer.pointer("/country"));
        try (Informer informer = new Informer(queue, options)) {
            Informer.Registration handler = informer.addHandler(new InformerHandler() {
                @Override
                public void onAdd(QueueObject object, boolean isInInitialList) {
                    events.add("add " + object.key() + " " + isInInitialList);
                    throw new Endless();
                }

                @Override
                public void onDelete(QueueObject object, boolean isFinalStateUnknown) {
                    events.add("delete " + object.key());
                }
            });
            CompletableFuture<Void> end = informer.start();
            assertTrue(Informer.waitForCacheSync(Duration.ofSeconds(30), informer, handler));
            assertEquals(List.of("add oslo true", "add rome true"), events);
            assertEquals("rome", informer.store().byIndex("by_country", "it").get(0).key());
            assertEquals(List.of("it", "no"), informer.store().indexValues("by_country"));
            queue.deleteKey("oslo");
            while (informer.store().size() > 1) {
                Thread.sleep(5);
            }
            Informer.Registration late = informer.addHandler(new InformerHandler() {});
            late.synced().get(10, TimeUnit.SECONDS);
            assertEquals(List.of("rome"), informer.store().keys());
            assertNull(informer.store().get("oslo"));
            informer.close();
            end.get(10, TimeUnit.SECONDS);
            assertThrows(IllegalArgumentException.class, () -> informer.store().byIndex("other", "x"));
        }
        assertEquals("delete oslo", events.get(2));
    }

    @Test
    void aReflectorSendsListsAndChanges(Queue queue) {
        Reflector reflector = new Reflector(queue, "erp");
        assertEquals(2, reflector.replace(List.of(new Price("a", BigDecimal.ONE), new Price("b", BigDecimal.ONE))).queued());
        assertEquals(1, reflector.apply(List.of(DeltaCall.deleted("a"))).queued());
        assertEquals(2L, queue.sources().iterator().next().sequence());
        Reflector second = new Reflector(queue, "erp");
        List<Integer> polls = new ArrayList<>();
        second.poll(Duration.ofMillis(10), () -> {
            polls.add(1);
            if (polls.size() == 2) {
                throw new java.io.IOException("the source is away");
            }
            if (polls.size() == 3) {
                Thread.currentThread().interrupt();
            }
            return List.of(new Price("b", BigDecimal.ONE));
        });
        assertTrue(Thread.interrupted());
        assertEquals(List.of("b"), queue.latest().stream().map(QueueObject::key).toList());
        queue.deleteQueue();
        queue.add(Map.of("key", "z"));
        reflector.replace(List.of(new Price("c", BigDecimal.ONE)));
        assertEquals(List.of("c", "z"), queue.latest().stream().map(QueueObject::key).toList());
    }

    @Test
    void aReflectorKeepsTheLastListIfThereIsNone(Queue queue) {
        List<Integer> polls = new ArrayList<>();
        new Reflector(queue, "erp").poll(Duration.ofMillis(10), () -> {
            polls.add(1);
            if (polls.size() == 3) {
                Thread.currentThread().interrupt();
            }
            return polls.size() == 1 ? List.of(new Price("a", BigDecimal.ONE)) : null;
        });
        assertTrue(Thread.interrupted());
        assertEquals(List.of("a"), queue.latest().stream().map(QueueObject::key).toList());
    }

    @Test
    void aWatchEndsWithAnInterrupt(Queue queue) {
        queue.add(Map.of("key", "a"));
        List<String> rows = new ArrayList<>();
        assertThrows(example.deltaq.CancelledException.class, () -> queue.watch(new WatchOptions(), row -> {
            rows.add(row.type());
            Thread.currentThread().interrupt();
        }));
        assertTrue(Thread.interrupted());
        assertEquals(List.of("Added"), rows);
    }
}
