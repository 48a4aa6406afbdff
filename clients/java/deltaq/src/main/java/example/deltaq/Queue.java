package example.deltaq;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * The calls on one queue. Any number of threads may use it at once.
 *
 * <p>A call is repeated if its problem is retryable or if there was no reply. If only the reply was lost, a repeated add, update or delete may queue its
 * changes twice; a source and a sequence number prevent that. {@link #purge}, {@link #deleteQueue}, {@link #promote}, {@link #redrive}, {@link #discard},
 * {@link #resync}, {@link #seed}, a rate-limited add, a change with a condition and {@link #deltas} with an expected version are repeated only if they were
 * certainly not applied.
 *
 * <p>Objects to send are any values that Jackson writes as JSON objects: records, maps, trees, or {@link Json}. A list of them, an array or a stream is sent
 * as one call.
 */
public final class Queue {
    /** The size up to which a list is written before it is sent, so that its repeats need not read the source again. */
    private static final int BUFFERED_MAX = 4 << 20;

    final Client client;
    final Transport transport;
    private final String name;
    private final Encoding encoding;

    Queue(Client client, String name) {
        this.client = client;
        this.transport = client.transport;
        this.name = name;
        this.encoding = new Encoding(transport.encoder);
    }

    /**
     * The name of the queue.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * The client of the queue.
     *
     * @return the client
     */
    public Client client() {
        return client;
    }

    /** A call on the queue; the path is what follows the name of the queue. */
    Request call(String method, String path) {
        if (name == null || name.isEmpty()) {
            throw new IllegalArgumentException("not sent: the name of the queue is empty; it is the argument of Client.queue, such as queue(\"orders\")");
        }
        return new Request(method, "/v1/queues/" + Request.segment(name) + path, name);
    }

    private <T> T send(Request call, Class<T> type) {
        return transport.fetch(call, Client.reader(type));
    }

    private void sendOnly(Request call) {
        transport.fetch(call, Transport.Reply::body);
    }

    private <T> Listing<T> list(String path, ListOptions options, Class<T> type, Consumer<Request> change) {
        return list(path, options.limit, options.next, type, change);
    }

    private <T> Listing<T> list(String path, Integer limit, String first, Class<T> type, Consumer<Request> change) {
        return new Listing<>(first, token -> {
            Request call = call("GET", path);
            change.accept(call);
            call.with("limit", limit).withText("continue", token);
            return transport.fetch(call, reply -> reply.read(value -> Documents.readPage(value, type)));
        });
    }

    // Settings and state.

    /**
     * Creates the queue with these settings, or replaces all of its settings: what is not given gets its default.
     *
     * @param settings the settings
     * @return the settings that are in force
     */
    public TaggedSettings putSettings(QueueSettings settings) {
        return putSettings(settings, new PutOptions());
    }

    /**
     * Creates the queue with these settings, or replaces all of its settings.
     *
     * @param settings the settings
     * @param options conditions
     * @return the settings that are in force
     */
    public TaggedSettings putSettings(QueueSettings settings, PutOptions options) {
        Request call = call("PUT", "").json(settings).withFlag("force", options.force).header("if-match", options.ifMatch);
        return change(call.header("if-none-match", options.ifAbsent ? "*" : null));
    }

    /**
     * Changes the settings that are given. Settings that are documents are merged with the present ones.
     *
     * @param changes the settings to change
     * @return the settings that are in force
     */
    public TaggedSettings patchSettings(QueueSettings changes) {
        return patchSettings(changes, new PatchOptions());
    }

    /**
     * Changes the settings that are given.
     *
     * @param changes the settings to change
     * @param options conditions, and settings that get their default
     * @return the settings that are in force
     */
    public TaggedSettings patchSettings(QueueSettings changes, PatchOptions options) {
        Map<String, Object> members = Documents.members(changes);
        for (String setting : options.reset) {
            members.put(setting, null);
        }
        return change(call("PATCH", "").json(members).withFlag("force", options.force).header("if-match", options.ifMatch));
    }

    private TaggedSettings change(Request call) {
        // A repeat after a lost reply would be refused, although the first call was applied.
        call.isOnce = !call.headers.isEmpty();
        return transport.fetch(call, reply -> new TaggedSettings(Client.reader(QueueDocument.class).apply(reply).settings(), reply.etag()));
    }

    /**
     * Says what {@link #putSettings} with these settings would change. Nothing is changed.
     *
     * @param settings the settings
     * @return the plan
     */
    public SettingsPlan planSettings(QueueSettings settings) {
        return send(call("POST", "/settings/plan").json(settings), SettingsPlan.class);
    }

    /**
     * The settings of the queue, as {@link #putSettings} takes them.
     *
     * @return the settings with their tag
     */
    public TaggedSettings settings() {
        return transport.fetch(call("GET", "/settings"), reply -> new TaggedSettings(Client.reader(QueueSettings.class).apply(reply), reply.etag()));
    }

    /**
     * The queue with its settings and its status.
     *
     * @return the document
     */
    public QueueDocument get() {
        return send(call("GET", ""), QueueDocument.class);
    }

    /**
     * The counts and flags of the queue.
     *
     * @return the status
     */
    public QueueStatus status() {
        return send(call("GET", "/status"), QueueStatus.class);
    }

    /** Deletes the queue with all its contents. */
    public void deleteQueue() {
        deleteQueue(false);
    }

    /**
     * Deletes the queue with all its contents.
     *
     * @param force whether the followers of the queue are detached, which otherwise refuse the call
     */
    public void deleteQueue(boolean force) {
        sendOnly(call("DELETE", "").withFlag("force", force).once());
    }

    /**
     * Stops delivery.
     *
     * @return the queue
     */
    public QueueDocument pause() {
        return send(call("POST", "/pause"), QueueDocument.class);
    }

    /**
     * Resumes delivery.
     *
     * @return the queue
     */
    public QueueDocument resume() {
        return send(call("POST", "/resume"), QueueDocument.class);
    }

    /**
     * Stops the delivery of a group.
     *
     * @param group its name; empty for the group without a name
     * @return the queue
     */
    public QueueDocument pauseGroup(String group) {
        return send(call("POST", "/pause").json(Map.of("group", group)), QueueDocument.class);
    }

    /**
     * Resumes the delivery of a group, and ends its hold.
     *
     * @param group its name; empty for the group without a name
     * @return the queue
     */
    public QueueDocument resumeGroup(String group) {
        return send(call("POST", "/resume").json(Map.of("group", group)), QueueDocument.class);
    }

    /**
     * Closes the queue: pops drain it, and then get {@link Codes#QUEUE_CLOSED}.
     *
     * @return the queue
     */
    public QueueDocument close() {
        return close(new CloseOptions());
    }

    /**
     * Closes the queue.
     *
     * @param options when pops end, and whether the call waits
     * @return the queue
     */
    public QueueDocument close(CloseOptions options) {
        Request call = call("POST", "/close").with("wait_for", options.atOnce ? "none" : null).withFlag("drain", options.drain);
        return send(call.with("wait", options.wait).waits(options.wait), QueueDocument.class);
    }

    /**
     * Opens a closed queue again.
     *
     * @return the queue
     */
    public QueueDocument reopen() {
        return send(call("POST", "/reopen"), QueueDocument.class);
    }

    /**
     * Sends a test request to the endpoint to which the queue pushes. What the endpoint answers is no error.
     *
     * @return what the endpoint has answered
     */
    public PushTest testPush() {
        return send(call("POST", "/push/test"), PushTest.class);
    }

    /**
     * Drops ready and delayed keys, and changes that arrived during a lease.
     *
     * @return what was dropped
     */
    public Purged purge() {
        return send(call("POST", "/purge").once(), Purged.class);
    }

    private long keys(String path, Object body, boolean isOnce) {
        Request call = call("POST", path).json(body);
        call.isOnce = isOnce;
        return send(call, KeyCount.class).keys();
    }

    /**
     * Makes delayed keys ready before they are due.
     *
     * @param selection the keys
     * @return their number
     */
    public long promote(Selection selection) {
        return keys("/delayed/promote", selection.body(), true);
    }

    /**
     * Makes parked keys ready.
     *
     * @param selection the keys
     * @return their number
     */
    public long redrive(Selection selection) {
        return keys("/parked/redrive", selection.body(), true);
    }

    /**
     * Drops parked keys.
     *
     * @param selection the keys
     * @return their number
     */
    public long discard(Selection selection) {
        return keys("/parked/discard", selection.body(), true);
    }

    /**
     * Sets the failures of keys to 0.
     *
     * @param keys the keys
     * @return the number of keys that had failures
     */
    public long forget(String... keys) {
        return keys("/forget", Map.of("keys", List.of(keys)), false);
    }

    // Produce.

    private Produced produce(String path, String body, ProduceOptions options) {
        Request call = call("POST", path).withText("key", options.key).withText("source", options.source).with("sequence", options.sequence)
                .with("delay", options.delay).with("debounce", options.debounce).with("max_wait", options.maxWait).with("head_start", options.headStart)
                .withFlag("must_exist", options.mustExist).withFlag("rate_limited", options.rateLimited);
        call.header("traceparent", options.traceparent).header("if-match", options.ifMatch).header("if-none-match", options.ifAbsent ? "*" : null);
        call.body = body;
        boolean hasCondition = options.ifAbsent || (options.ifMatch != null && !options.ifMatch.isEmpty());
        // A repeat after a lost reply would count again, or would be refused although the first call was applied.
        call.isOnce = (options.rateLimited || hasCondition) && options.sequence == null;
        return send(call, Produced.class);
    }

    /**
     * Queues an Added change for an object, or for each object of a list, all or none.
     *
     * @param objects an object, or a list of objects
     * @return what was queued
     */
    public Produced add(Object objects) {
        return add(objects, new ProduceOptions());
    }

    /**
     * Queues an Added change for an object, or for each object of a list, all or none.
     *
     * @param objects an object, or a list of objects
     * @param options the options
     * @return what was queued
     */
    public Produced add(Object objects, ProduceOptions options) {
        return produce("/add", encoding.objects(objects), options);
    }

    /**
     * Queues an Updated change for an object, or for each object of a list, all or none.
     *
     * @param objects an object, or a list of objects
     * @return what was queued
     */
    public Produced update(Object objects) {
        return update(objects, new ProduceOptions());
    }

    /**
     * Queues an Updated change for an object, or for each object of a list, all or none.
     *
     * @param objects an object, or a list of objects
     * @param options the options
     * @return what was queued
     */
    public Produced update(Object objects, ProduceOptions options) {
        return produce("/update", encoding.objects(objects), options);
    }

    /**
     * Queues a Deleted change for an object, or for each object of a list, all or none.
     *
     * @param objects an object, or a list of objects
     * @return what was queued
     */
    public Produced delete(Object objects) {
        return delete(objects, new ProduceOptions());
    }

    /**
     * Queues a Deleted change for an object, or for each object of a list, all or none.
     *
     * @param objects an object, or a list of objects
     * @param options the options
     * @return what was queued
     */
    public Produced delete(Object objects, ProduceOptions options) {
        return produce("/delete", encoding.objects(objects), options);
    }

    /**
     * Adds a key without an object to a queue of mode keys.
     *
     * @param key the key
     * @return what was queued
     */
    public Produced addKey(String key) {
        return addKey(key, new ProduceOptions());
    }

    /**
     * Adds a key without an object to a queue of mode keys.
     *
     * @param key the key
     * @param options the options
     * @return what was queued
     */
    public Produced addKey(String key, ProduceOptions options) {
        return produce("/add", null, options.copy().key(named(key)));
    }

    /**
     * Queues a Deleted change with the newest object of the key.
     *
     * @param key the key
     * @return what was queued
     */
    public Produced deleteKey(String key) {
        return deleteKey(key, new ProduceOptions());
    }

    /**
     * Queues a Deleted change with the newest object of the key.
     *
     * @param key the key
     * @param options the options
     * @return what was queued
     */
    public Produced deleteKey(String key, ProduceOptions options) {
        return produce("/delete", null, options.copy().key(named(key)));
    }

    private static String named(String key) {
        if (key == null || key.isEmpty()) {
            throw new EncodeException("the key is empty", null);
        }
        return key;
    }

    /**
     * Queues a mixed batch, all or none.
     *
     * @param entries the entries
     * @return what was queued
     */
    public Produced deltas(List<DeltaCall> entries) {
        return deltas(entries, new DeltasOptions());
    }

    /**
     * Queues a mixed batch, all or none.
     *
     * @param entries the entries
     * @param options the options
     * @return what was queued
     */
    public Produced deltas(List<DeltaCall> entries, DeltasOptions options) {
        ListCall call = deltasCall(entries, options);
        return transport.fetch(call.request, call.reader);
    }

    /** A call with a list, and the reader of its reply. */
    record ListCall(Request request, Function<Transport.Reply, Produced> reader) {}

    ListCall deltasCall(List<DeltaCall> entries, DeltasOptions options) {
        Request call = call("POST", "/deltas").withText("source", options.source).with("sequence", options.sequence)
                .withFlag("skip_invalid", options.skipInvalid).withFlag("must_exist", options.mustExist).header("traceparent", options.traceparent);
        Lines lines = new Lines(encoding, options.skipInvalid);
        call.body = "[]";
        for (DeltaCall entry : entries) {
            // If only the reply was lost, a repeat is refused: the first call has changed the version.
            call.isOnce |= entry.expectedVersion() != null && options.sequence == null;
            lines.add(options.skipInvalid ? readable(entry) : entry);
        }
        if (!entries.isEmpty()) {
            call.contentType = "application/x-ndjson";
            call.body = lines.take();
        }
        return new ListCall(call, reply -> lines.explain(Client.reader(Produced.class).apply(reply)));
    }

    /** A deletion needs only its key, so it is sent also if its object can't be written. */
    private DeltaCall readable(DeltaCall entry) {
        if (!DeltaType.DELETED.equals(entry.type()) || entry.key() == null || entry.object() == null) {
            return entry;
        }
        try {
            encoding.write(entry.object());
            return entry;
        } catch (EncodeException e) {
            return entry.withObject(null);
        }
    }

    /**
     * Queues a Sync change for each known key that has no waiting change and is neither leased nor parked.
     *
     * @return what was queued
     */
    public Produced resync() {
        return send(call("POST", "/resync").once(), Produced.class);
    }

    /**
     * Stores objects as known without a change. The queue must have no work.
     *
     * @param objects the objects
     * @return the reply
     */
    public Produced seed(List<SeedCall> objects) {
        Request call = call("POST", "/seed").once();
        call.body = encoding.objects(objects);
        return send(call, Produced.class);
    }

    /**
     * Sends the whole list of a source: each object is queued, and so is the deletion of each key that the list lacks. The list may have any length. It is
     * read once, and once more for each repeat if it has more than about 4 MiB. An exception of the list ends the call, which then has changed nothing. If the
     * call is cancelled while the iterator of a long list blocks, it ends at once, and another thread may still wait in the iterator.
     *
     * @param objects the objects
     * @return what was queued
     */
    public ReplaceReply replace(Iterable<?> objects) {
        return replace(objects, new ReplaceOptions());
    }

    /**
     * Sends the whole list of a source.
     *
     * @param objects the objects
     * @param options the options
     * @return what was queued
     */
    public ReplaceReply replace(Iterable<?> objects, ReplaceOptions options) {
        ReplaceCall call = replaceCall(objects, options);
        return transport.fetch(call.request, call.reader);
    }

    record ReplaceCall(Request request, Function<Transport.Reply, ReplaceReply> reader) {}

    ReplaceCall replaceCall(Iterable<?> objects, ReplaceOptions options) {
        // No list is not taken for an empty one, which may delete keys.
        Check.given("objects", objects, "a list, which may be empty");
        Request call = call("POST", "/replace").withText("source", options.source).with("sequence", options.sequence)
                .withFlag("only_changed", options.onlyChanged).with("max_delete_percent", options.maxDeletePercent).with("max_deletes", options.maxDeletes)
                .withFlag("allow_empty", options.allowEmpty).with("duplicates", options.keepLast ? "last" : null)
                .withFlag("skip_invalid", options.skipInvalid).withFlag("must_exist", options.mustExist).withFlag("dry_run", options.dryRun)
                .header("traceparent", options.traceparent).waits(transport.listWait);
        call.contentType = "application/x-ndjson";
        Lines lines = new Lines(encoding, options.skipInvalid);
        Iterator<?> begun = objects.iterator();
        if (lines.fill(begun, BUFFERED_MAX)) {
            call.body = lines.take();
        } else {
            call.list = new ListBody(objects, begun, lines);
        }
        return new ReplaceCall(call, reply -> {
            ReplaceReply read = Client.reader(ReplaceReply.class).apply(reply);
            return read.with(lines.explain(read.produced()).invalidObjects());
        });
    }

    /**
     * Reports why the queue is not in step with a source.
     *
     * @param source the source
     * @param problem the problem; null reports that the queue is in step
     */
    public void reportSource(String source, String problem) {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("source", source);
        body.put("problem", problem);
        sendOnly(call("POST", "/sources").json(body));
    }

    /**
     * Reports that the source was reached and has no change, so that it does not count as silent.
     *
     * @param source the source
     */
    public void seenSource(String source) {
        sendOnly(call("POST", "/sources/" + Request.segment(source) + "/seen"));
    }

    /**
     * Sets how long a source may be silent before it counts as stale.
     *
     * @param source the source
     * @param staleAfter the threshold; null removes it
     * @return the source
     */
    public Source setStaleAfter(String source, Duration staleAfter) {
        return changeSource(source, "stale_after", staleAfter);
    }

    /**
     * Sets the last sequence number of a source.
     *
     * @param source the source
     * @param sequence the number; null forgets it, so the next call of the source is applied whatever its number is
     * @return the source
     */
    public Source renumberSource(String source, Long sequence) {
        return changeSource(source, "sequence", sequence);
    }

    private Source changeSource(String source, String member, Object value) {
        Map<String, Object> change = new LinkedHashMap<>();
        change.put(member, value);
        return send(call("PATCH", "/sources/" + Request.segment(source)).json(change), Source.class);
    }

    // Consume.

    /** A random id, which other clients can't guess. */
    static String newId() {
        byte[] bytes = new byte[16];
        Random.SECURE.nextBytes(bytes);
        StringBuilder id = new StringBuilder();
        for (byte each : bytes) {
            id.append(Character.forDigit((each >> 4) & 0xF, 16)).append(Character.forDigit(each & 0xF, 16));
        }
        return id.toString();
    }

    private static final class Random {
        static final java.security.SecureRandom SECURE = new java.security.SecureRandom();
    }

    Request popCall(PopOptions options) {
        List<String> with = new ArrayList<>();
        if (options.withKnown) {
            with.add("known");
        }
        if (options.withDiff) {
            with.add("diff");
        }
        return call("POST", "/pop").with("wait", options.wait).with("max", options.max).with("lease_duration", options.leaseDuration)
                .withText("worker", options.worker).with("id", options.id).with("group", options.group).withText("with", String.join(",", with))
                .waits(options.wait).json(Map.of("settle", options.settle));
    }

    /**
     * Leases one key, if one is ready.
     *
     * @return the key
     */
    public Popped pop() {
        return pop(new PopOptions());
    }

    /**
     * Settles earlier leases, and then leases keys. A repeat after a lost reply returns the same leases.
     *
     * @param options the options
     * @return the keys
     */
    public Popped pop(PopOptions options) {
        PopOptions given = options.copy();
        if (given.id == null) {
            given.id = newId();
        }
        return send(popCall(given), Popped.class);
    }

    /** Makes a call that settles. If all of its leases had ended before, the results are in a problem. */
    static SettledList results(java.util.function.Supplier<SettledList> call) {
        try {
            return call.get();
        } catch (ProblemException problem) {
            if (problem.is(Codes.LEASE_LOST) && problem.settled() != null) {
                return new SettledList(problem.settled(), problem.settled().size());
            }
            throw problem;
        }
    }

    /**
     * Ends or extends leases, each in its own way. A lease that had ended before is stale in the reply, which is no error.
     *
     * @param settles the leases
     * @return the results
     */
    public SettledList settle(List<Settle> settles) {
        return results(() -> send(settleCall(settles), SettledList.class));
    }

    Request settleCall(List<Settle> settles) {
        return call("POST", "/settle").json(Map.of("settle", settles));
    }

    private SettledList settleAll(String path, List<String> leaseIds, Map<String, Object> members) {
        Map<String, Object> body = new LinkedHashMap<>(members);
        body.put("lease_ids", leaseIds);
        return results(() -> send(call("POST", path).json(body), SettledList.class));
    }

    /**
     * Acknowledges leases: their work is done. A lease that had ended before is stale in the reply, which is no error.
     *
     * @param leaseIds the leases
     * @return the results
     */
    public SettledList ack(String... leaseIds) {
        return settleAll("/ack", List.of(leaseIds), Map.of());
    }

    /**
     * Ends leases without a failure: their keys are delivered again at once.
     *
     * @param leaseIds the leases
     * @return the results
     */
    public SettledList release(String... leaseIds) {
        return settleAll("/release", List.of(leaseIds), Map.of());
    }

    /**
     * Ends leases of a queue of mode keys, and keeps the failures of their keys.
     *
     * @param leaseIds the leases
     * @param delay the time after which the keys are added again; null for not at all
     * @return the results
     */
    public SettledList done(List<String> leaseIds, Duration delay) {
        return settleAll("/done", leaseIds, delay == null ? Map.of() : Map.of("delay", delay));
    }

    /**
     * Reports that the work of leases has failed: their keys are delivered again later.
     *
     * @param leaseIds the leases
     * @param options the options
     * @return the results
     */
    public SettledList nack(List<String> leaseIds, NackOptions options) {
        Map<String, Object> members = new LinkedHashMap<>();
        if (options.delay != null) {
            members.put("delay", options.delay);
        }
        if (options.floor) {
            members.put("floor", true);
        }
        if (options.error != null) {
            members.put("error", options.error);
        }
        return settleAll("/nack", leaseIds, members);
    }

    /**
     * Parks the keys of leases. Except in mode events, a key with a newer change is delivered again instead.
     *
     * @param leaseIds the leases
     * @param error why the work will never succeed, or null
     * @return the results
     */
    public SettledList reject(List<String> leaseIds, String error) {
        return settleAll("/reject", leaseIds, error == null ? Map.of() : Map.of("error", error));
    }

    /**
     * Sets the deadlines of leases.
     *
     * @param leaseIds the leases
     * @param options the options
     * @return the results
     */
    public SettledList extend(List<String> leaseIds, ExtendOptions options) {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("lease_ids", leaseIds);
        if (options.leaseDuration != null) {
            body.put("lease_duration", options.leaseDuration);
        }
        Request call = call("POST", "/extend").withFlag("until_changed", options.untilChanged != null).with("wait", options.untilChanged)
                .waits(options.untilChanged).json(body);
        return results(() -> send(call, SettledList.class));
    }

    // Read.

    /**
     * A page of the errors of the parked keys, the most frequent ones first.
     *
     * @param options the page
     * @return the page
     */
    public ParkedErrors parkedErrors(ListOptions options) {
        return send(call("GET", "/parked/errors").with("limit", options.limit).withText("continue", options.next), ParkedErrors.class);
    }

    /**
     * The keys with waiting or leased changes.
     *
     * @return the keys
     */
    public Listing<Item> items() {
        return items(new ItemsOptions());
    }

    /**
     * The keys with waiting or leased changes.
     *
     * @param options which keys
     * @return the keys
     */
    public Listing<Item> items(ItemsOptions options) {
        ItemsOptions given = options.copy();
        return list("/items", given.limit, given.next, Item.class, call -> call.withText("state", String.join(",", given.states))
                .withText("worker", given.worker).withText("prefix", given.prefix).withText("source", given.source).withText("key", given.key)
                .with("error", given.error).with("with", given.withDiff ? "diff" : null));
    }

    /**
     * One key.
     *
     * @param key the key
     * @return the key
     * @throws ProblemException with {@link Codes#KEY_NOT_FOUND} if the queue does not have it
     */
    public Item item(String key) {
        return send(call("GET", "/item").with("key", key), Item.class);
    }

    /**
     * One key, with the difference from the object that was acknowledged last to the newest one.
     *
     * @param key the key
     * @return the key
     */
    public Item itemWithDiff(String key) {
        return send(call("GET", "/item").with("key", key).with("with", "diff"), Item.class);
    }

    /**
     * Why a key is not delivered.
     *
     * @param key the key
     * @return the reason
     */
    public Explanation explain(String key) {
        return send(call("GET", "/explain").with("key", key), Explanation.class);
    }

    private Listing<QueueObject> view(String view, ViewOptions options) {
        ViewOptions given = options.copy();
        return list("/" + view, given.limit, given.next, QueueObject.class, call -> call.withText("prefix", given.prefix).withText("source", given.source)
                .withText("shard", given.shard).withText("key", given.key).withText("index", given.index).with("value", given.value)
                .with("wait", given.wait).waits(given.wait));
    }

    /**
     * The newest objects, in the order of their keys.
     *
     * @return the objects
     */
    public Listing<QueueObject> latest() {
        return latest(new ViewOptions());
    }

    /**
     * The newest objects, in the order of their keys.
     *
     * @param options which objects
     * @return the objects
     */
    public Listing<QueueObject> latest(ViewOptions options) {
        return view(View.LATEST, options);
    }

    /**
     * The objects that were acknowledged last, in the order of their keys.
     *
     * @return the objects
     */
    public Listing<QueueObject> known() {
        return known(new ViewOptions());
    }

    /**
     * The objects that were acknowledged last, in the order of their keys.
     *
     * @param options which objects
     * @return the objects
     */
    public Listing<QueueObject> known(ViewOptions options) {
        return view(View.KNOWN, options);
    }

    private TaggedObject object(String view, String key, ObjectOptions options) {
        Request call = call("GET", "/object").with("view", view).with("key", key).with("min_resource_version", options.minResourceVersion);
        return transport.fetch(call, reply -> new TaggedObject(Client.reader(QueueObject.class).apply(reply), reply.etag()));
    }

    /**
     * The newest object of a key.
     *
     * @param key the key
     * @return the object
     * @throws ProblemException with {@link Codes#KEY_NOT_FOUND} if there is none
     */
    public TaggedObject latestObject(String key) {
        return latestObject(key, new ObjectOptions());
    }

    /**
     * The newest object of a key.
     *
     * @param key the key
     * @param options the options
     * @return the object
     */
    public TaggedObject latestObject(String key, ObjectOptions options) {
        return object(View.LATEST, key, options);
    }

    /**
     * The object of a key that was acknowledged last.
     *
     * @param key the key
     * @return the object
     * @throws ProblemException with {@link Codes#KEY_NOT_FOUND} if there is none
     */
    public TaggedObject knownObject(String key) {
        return knownObject(key, new ObjectOptions());
    }

    /**
     * The object of a key that was acknowledged last.
     *
     * @param key the key
     * @param options the options
     * @return the object
     */
    public TaggedObject knownObject(String key, ObjectOptions options) {
        return object(View.KNOWN, key, options);
    }

    /**
     * The events of a key, newest first.
     *
     * @param key the key
     * @return the events
     */
    public Listing<HistoryEvent> history(String key) {
        return history(key, new ListOptions());
    }

    /**
     * The events of a key, newest first.
     *
     * @param key the key
     * @param options the pages
     * @return the events
     */
    public Listing<HistoryEvent> history(String key, ListOptions options) {
        return list("/history", options.copy(), HistoryEvent.class, call -> call.with("key", key));
    }

    /**
     * The sources that own keys, have made calls or have a problem.
     *
     * @return the sources
     */
    public Listing<Source> sources() {
        return list("/sources", new ListOptions(), Source.class, call -> {});
    }

    /**
     * The workers that hold leases or wait for keys.
     *
     * @return the workers
     */
    public Listing<WorkerStatus> workers() {
        return list("/workers", new ListOptions(), WorkerStatus.class, call -> {});
    }

    /**
     * The first 20 groups of keys that take turns.
     *
     * @param sort wait, ready or leased; null for wait
     * @return the groups
     */
    public GroupList groups(String sort) {
        return send(call("GET", "/groups").withText("sort", sort), GroupList.class);
    }

    /**
     * The indexes of the known objects.
     *
     * @return the indexes
     */
    public Listing<Index> indexes() {
        return list("/indexes", new ListOptions(), Index.class, call -> {});
    }

    /**
     * The values of an index, in their order.
     *
     * @param index its name
     * @param prefix the prefix of the values; null or empty for all
     * @return the values
     */
    public Listing<IndexValue> indexValues(String index, String prefix) {
        return list("/indexes/" + Request.segment(index), new ListOptions(), IndexValue.class, call -> call.withText("prefix", prefix));
    }

    /**
     * Whether the initial list is processed.
     *
     * @return the reply
     */
    public SyncedReply synced() {
        return synced(new SyncedOptions());
    }

    /**
     * Whether the initial list is processed or, with a version, whether everything up to it is acknowledged.
     *
     * @param options the options
     * @return the reply
     */
    public SyncedReply synced(SyncedOptions options) {
        Request call = call("GET", "/synced").with("resource_version", options.now ? "now" : options.resourceVersion).with("wait", options.wait);
        return send(call.waits(options.wait), SyncedReply.class);
    }

    /**
     * Calls a function with each row of a watch, on one stream, until the server ends the stream, which it does after some minutes. It does not connect
     * again. An interrupt of the thread ends it.
     *
     * @param options which changes
     * @param function gets the rows
     * @throws DeltaqException if the connection is lost, or the server refuses to go on
     */
    public void watch(WatchOptions options, Consumer<WatchRow> function) {
        new Watch(this, options.copy()).run(transport.scope, function);
    }

    /** Varies a time by a tenth. */
    static Duration varied(Duration length) {
        return Duration.ofNanos((long) (Clock.nanos(length) * (0.9 + 0.2 * ThreadLocalRandom.current().nextDouble())));
    }

    @Override
    public String toString() {
        return "Queue[" + name + "]";
    }
}
