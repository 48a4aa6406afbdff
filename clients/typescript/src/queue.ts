/** The calls on one queue. */

import type {
    DeltaCall,
    Ended,
    Explanation,
    Extended,
    GroupList,
    HistoryEvent,
    IndexDocument,
    IndexValue,
    Item,
    ObjectDocument,
    Page,
    ParkedError,
    ParkedErrorsPage,
    Popped,
    Problem,
    Produced,
    PushTest,
    QueueDocument,
    QueueSettings,
    QueueStatus,
    Replaced,
    SeedCall,
    Settle,
    Settled,
    SettledList,
    SettingsInput,
    SourceDocument,
    Synced,
    SettingsPlan,
    TaggedObject,
    TaggedSettings,
    View,
    WatchRow,
    WorkerDocument,
} from "./documents.js";
import { type Duration, milliseconds } from "./duration.js";
import { DeltaqError, messageOf, problemError, unexpectedReply } from "./error.js";
import type { Parse } from "./json.js";
import { lines } from "./lines.js";
import { List } from "./list.js";
import type { Notices } from "./notices.js";
import { enclosedText, listLines, listStream, type Objects, objectsText } from "./objects.js";
import type {
    AddOptions,
    DebounceOptions,
    ExtendOptions,
    FailOptions,
    GetOptions,
    HoldOptions,
    ItemsOptions,
    KnownOptions,
    ListOptions,
    OrderOptions,
    PatchOptions,
    PopOptions,
    MatchOptions,
    ProduceOptions,
    PutOptions,
    ReplaceOptions,
    SelectedOptions,
    SyncedOptions,
    ViewOptions,
    WatchOptions,
} from "./options.js";
import { holdOf } from "./outcome.js";
import type { Retry } from "./retry.js";
import type { Call, CallOptions, Transport } from "./transport.js";

/** A stream that is silent for this many bookmark intervals counts as lost. */
const SILENT_INTERVALS = 2.5;

type Query = NonNullable<Call["query"]>;

/** One lease or several, by their ids. */
export type LeaseIds = string | readonly string[];

/** Selects parked or delayed keys: the named keys, the keys with this error (empty: keys without an error), or all. */
export type Selection = readonly string[] | { error: string } | { all: true };

/**
 * A queue of a server, whose objects have the type `T`.
 *
 * A call is repeated if its problem is retryable or if there was no reply. If only the reply was lost, a repeated add, update or delete may queue its
 * deltas twice; `source` and `sequence` prevent that. `purge`, `deleteQueue`, `promote`, `redrive`, `discard`, `resync` and a rate-limited `addKey` are
 * not repeated if they may have been applied. Nor are `putSettings` and `patchSettings` with a condition, and `deltas` with an `expected_version`, because
 * a repeat would be refused.
 */
export class Queue<T> {
    readonly name: string;
    readonly #transport: Transport;
    readonly #parse: Parse;

    /** For `Client.queue`, which programs should call instead. */
    constructor(transport: Transport, name: string, parse: Parse) {
        this.name = name;
        this.#transport = transport;
        this.#parse = parse;
    }

    /** Creates the queue with these settings, or replaces all of its settings. A setting that is absent or null gets its default. */
    async putSettings(settings: SettingsInput = {}, options: PutOptions = {}): Promise<TaggedSettings> {
        return this.#change("PUT", settings, options);
    }

    /** Changes the named settings of the queue; null resets a setting, and objects are merged. */
    async patchSettings(changes: SettingsInput, options: PatchOptions = {}): Promise<TaggedSettings> {
        return this.#change("PATCH", changes, options);
    }

    /** What `putSettings` with these settings would change. Nothing is changed. */
    planSettings(settings: SettingsInput = {}, options: CallOptions = {}): Promise<SettingsPlan> {
        return this.#post(["settings", "plan"], {}, options, settings);
    }

    /** The settings of the queue, as `putSettings` takes them. */
    async settings(options: CallOptions = {}): Promise<TaggedSettings> {
        const { document, etag } = await this.#send<Tagged<QueueSettings>>({ method: "GET", path: ["settings"], isTagged: true }, options);
        return { settings: document, etag };
    }

    /** The queue with its settings and its status. */
    get(options: CallOptions = {}): Promise<QueueDocument> {
        return this.#get([], {}, options);
    }

    status(options: CallOptions = {}): Promise<QueueStatus> {
        return this.#get(["status"], {}, options);
    }

    /** Deletes the queue with all its contents. `force` detaches its followers. */
    async deleteQueue(options: CallOptions & { force?: boolean | undefined } = {}): Promise<void> {
        await this.#send({ method: "DELETE", path: [], query: { force: options.force }, countsTwice: true }, options);
    }

    /** Stops delivery. */
    pause(options: CallOptions = {}): Promise<QueueDocument> {
        return this.#post(["pause"], {}, options);
    }

    resume(options: CallOptions = {}): Promise<QueueDocument> {
        return this.#post(["resume"], {}, options);
    }

    /** Sends a test request to the endpoint to which the queue pushes. What the endpoint answers is no error. */
    testPush(options: CallOptions = {}): Promise<PushTest> {
        return this.#post(["push", "test"], {}, options);
    }

    /** Stops the delivery of a group. The empty name is that of the group without a name. */
    pauseGroup(group: string, options: CallOptions = {}): Promise<QueueDocument> {
        return this.#post(["pause"], {}, options, { group });
    }

    /** Resumes the delivery of a group, and ends its hold. */
    resumeGroup(group: string, options: CallOptions = {}): Promise<QueueDocument> {
        return this.#post(["resume"], {}, options, { group });
    }

    /**
     * Closes the queue: pops drain it, and then get 410 `queue-closed`. With `atOnce`, they get it as soon as no key is ready; otherwise they also wait
     * for delayed and leased keys. With `drain` the call waits, for at most `wait`, until the queue is drained.
     */
    close(options: CallOptions & { atOnce?: boolean | undefined; drain?: boolean | undefined; wait?: Duration | undefined } = {}): Promise<QueueDocument> {
        const { atOnce, drain, wait } = options;
        return this.#post(["close"], { waitFor: atOnce ? "none" : undefined, drain, wait }, options);
    }

    reopen(options: CallOptions = {}): Promise<QueueDocument> {
        return this.#post(["reopen"], {}, options);
    }

    /** Drops ready and delayed keys, and deltas that arrived during a lease. */
    purge(options: CallOptions = {}): Promise<{ keys: number; deltas: number }> {
        return this.#send({ method: "POST", path: ["purge"], countsTwice: true }, options);
    }

    /** Queues an `Added` delta for each object. */
    add(objects: Objects<T>, options: AddOptions = {}): Promise<Produced> {
        const { delay, debounce, maxWait, headStart, key } = options;
        return this.#produce("add", { delay, debounce, maxWait, headStart, key }, options, objectsText(objects, "add"));
    }

    /** Mode keys: adds a key without an object. With `rateLimited` the key waits as after a failure, and the call counts as one. */
    addKey(key: string, options: Omit<AddOptions, "key" | "ifMatch" | "ifAbsent"> & { rateLimited?: boolean | undefined } = {}): Promise<Produced> {
        const { delay, debounce, maxWait, headStart, rateLimited } = options;
        return this.#produce("add", { delay, debounce, maxWait, headStart, key, rateLimited }, options, undefined, rateLimited === true);
    }

    /** Queues an `Updated` delta for each object. */
    update(objects: Objects<T>, options: AddOptions = {}): Promise<Produced> {
        const { delay, debounce, maxWait, headStart, key } = options;
        return this.#produce("update", { delay, debounce, maxWait, headStart, key }, options, objectsText(objects, "update"));
    }

    /** Queues a `Deleted` delta for each object. */
    delete(objects: Objects<T>, options: ProduceOptions & DebounceOptions & OrderOptions & MatchOptions = {}): Promise<Produced> {
        const { debounce, maxWait, headStart } = options;
        return this.#produce("delete", { debounce, maxWait, headStart }, options, objectsText(objects, "delete"));
    }

    /** Queues a `Deleted` delta with the newest object of the key. */
    deleteKey(key: string, options: ProduceOptions & DebounceOptions & OrderOptions & MatchOptions = {}): Promise<Produced> {
        const { debounce, maxWait, headStart } = options;
        return this.#produce("delete", { key, debounce, maxWait, headStart }, options);
    }

    /**
     * Sends the whole list of a source: each object is queued, and so is the deletion of each key that the list lacks. If `objects` is a function, it is
     * called once per attempt, and its objects are sent as they arrive. Browsers send streams only over HTTP/2.
     */
    replace(objects: Iterable<T | string> | (() => AsyncIterable<T | string>), options: ReplaceOptions = {}): Promise<Replaced> {
        const { signal: _signal, retry: _retry, replyTimeout: _timeout, traceparent, keepLast, ...parameters } = options;
        const query = { ...parameters, duplicates: keepLast ? "last" : undefined };
        const body = typeof objects === "function" ? () => listStream(objects(), "replace") : new Blob([...listLines(objects, "replace")]);
        const call = { method: "POST", path: ["replace"], query, body, headers: { traceparent }, contentType: "application/x-ndjson" } as const;
        return this.#send(call, options);
    }

    /** Queues a mixed batch, all or none. With `skipInvalid`, deltas with an invalid object are left out, however many they are. */
    deltas(deltas: readonly DeltaCall<T | string>[], options: ProduceOptions & { skipInvalid?: boolean | undefined } = {}): Promise<Produced> {
        const expects = deltas.some(delta => typeof delta.expected_version === "number");
        return this.#produce("deltas", { skipInvalid: options.skipInvalid }, options, enclosedText(deltas, "deltas"), expects);
    }

    /** Queues a `Sync` delta for each known key that has no waiting change and is neither leased nor parked. */
    resync(options: CallOptions & { traceparent?: string | undefined } = {}): Promise<Produced> {
        return this.#produce("resync", {}, options, undefined, true);
    }

    /** Stores objects as known without queueing a delta. The documents of `known` can be sent unchanged. */
    seed(objects: readonly SeedCall<T | string>[], options: CallOptions = {}): Promise<Produced> {
        return this.#produce("seed", {}, options, enclosedText(objects.map(({ key, source, object }) => ({ key, source, object })), "seed"), true);
    }

    /** Reports why the queue is not in step with a source; null: it is in step. */
    async reportSource(source: string, problem: string | null, options: CallOptions = {}): Promise<void> {
        await this.#post(["sources"], {}, options, { source, problem });
    }

    /** Reports that a source was reached and has no change, so that it does not count as silent. */
    async seenSource(source: string, options: CallOptions = {}): Promise<void> {
        await this.#post(["sources", source, "seen"], {}, options);
    }

    /** Sets how long a source may be silent before it counts as stale. Null removes the threshold. */
    setStaleAfter(source: string, staleAfter: Duration | null, options: CallOptions = {}): Promise<SourceDocument> {
        return this.#send({ method: "PATCH", path: ["sources", source], body: JSON.stringify({ stale_after: staleAfter }) }, options);
    }

    /** Sets the last sequence number of a source. Null forgets it: the next call of the source is applied whatever its number is. */
    renumberSource(source: string, sequence: number | null, options: CallOptions = {}): Promise<SourceDocument> {
        return this.#send({ method: "PATCH", path: ["sources", source], body: JSON.stringify({ sequence }) }, options);
    }

    /** Sets the failures of keys to 0. */
    forget(keys: readonly string[], options: CallOptions = {}): Promise<{ keys: number }> {
        return this.#post(["forget"], {}, options, { keys });
    }

    /** Leases keys. Each pop has an id, so a repeat after a lost reply returns the same leases. */
    pop(options: PopOptions = {}): Promise<Popped<T>> {
        const { signal: _signal, retry: _retry, replyTimeout: _timeout, settle = [], id = crypto.randomUUID(), withKnown, withDiff, ...query } = options;
        const added = [...(withKnown ? ["known"] : []), ...(withDiff ? ["diff"] : [])];
        return this.#post(["pop"], { ...query, id, with: added.length > 0 ? added : undefined }, options, { settle });
    }

    /** Settles leases, each in its own way. A lease that had already ended is `stale` in the reply, which is not an error. */
    settle(settle: readonly Settle[], options: CallOptions = {}): Promise<SettledList> {
        return this.#results(this.#post(["settle"], {}, options, { settle }));
    }

    ack(leases: LeaseIds, options: HoldOptions = {}): Promise<SettledList<Ended>> {
        return this.#end("ack", leases, options, { hold: holdOf(options) });
    }

    /** Mode keys: done, and the failure counts are kept. With `delay` the keys are added again after that time. */
    done(leases: LeaseIds, options: Omit<FailOptions, "floor" | "error"> = {}): Promise<SettledList<Ended>> {
        return this.#end("done", leases, options, { delay: options.delay });
    }

    /** Failed: the keys are delivered again after `delay` or, without it, after their backoff. */
    nack(leases: LeaseIds, options: FailOptions = {}): Promise<SettledList<Ended>> {
        const { delay, floor, error } = options;
        return this.#end("nack", leases, options, { delay, floor, error });
    }

    /** Returns the keys to the ready queue, without a failure. */
    release(leases: LeaseIds, options: HoldOptions = {}): Promise<SettledList<Ended>> {
        return this.#end("release", leases, options, { hold: holdOf(options) });
    }

    /** Parks the keys. Except in mode `events`, a key with a newer change is delivered again instead. */
    reject(leases: LeaseIds, options: Omit<FailOptions, "delay" | "floor"> = {}): Promise<SettledList<Ended>> {
        return this.#end("reject", leases, options, { error: options.error });
    }

    /**
     * Sets the deadline of leases. A lease that had already ended is `stale` in the reply, which is not an error. With `untilChanged`, the reply comes at the
     * first newer change of one of the keys, when one of the leases ends, or after this time.
     */
    extend(leases: LeaseIds, options: ExtendOptions = {}): Promise<SettledList<Extended>> {
        const { leaseDuration, untilChanged: wait } = options;
        const query = wait === undefined ? {} : { untilChanged: true, wait };
        return this.#end("extend", leases, options, { lease_duration: leaseDuration }, query);
    }

    /** The errors of the parked keys, the most frequent ones first, with the number of keys of each. */
    parkedErrors(options: ListOptions = {}): List<ParkedError, ParkedErrorsPage> {
        return this.#list(["parked", "errors"], {}, options);
    }

    /** Makes delayed keys ready before they are due. */
    promote(which: Selection, options: SelectedOptions = {}): Promise<{ keys: number }> {
        return this.#selected(["delayed", "promote"], which, options);
    }

    /** Makes parked keys ready. */
    redrive(which: Selection, options: SelectedOptions = {}): Promise<{ keys: number }> {
        return this.#selected(["parked", "redrive"], which, options);
    }

    /** Drops parked keys. */
    discard(which: Selection, options: SelectedOptions = {}): Promise<{ keys: number }> {
        return this.#selected(["parked", "discard"], which, options);
    }

    /** Keys with waiting or leased deltas. */
    items(options: ItemsOptions = {}): List<Item<T>> {
        const { state, worker, prefix, source, error, key } = options;
        const query = { state, worker, prefix, source, error, key, with: options.withDiff ? "diff" : undefined };
        return this.#list(["items"], query, options);
    }

    /** One key; undefined if the queue does not have it. */
    item(key: string, options: CallOptions & { withDiff?: boolean | undefined } = {}): Promise<Item<T> | undefined> {
        return this.#find("item", { key, with: options.withDiff ? "diff" : undefined }, options);
    }

    /** Why a key is not delivered. */
    explain(key: string, options: CallOptions = {}): Promise<Explanation> {
        return this.#get(["explain"], { key }, options);
    }

    /** The newest object of each key. */
    latest(options: ViewOptions = {}): List<ObjectDocument<T>> {
        return this.view("latest", options);
    }

    /** The acknowledged object of each key. */
    known(options: KnownOptions = {}): List<ObjectDocument<T>> {
        return this.view("known", options);
    }

    /** The objects of a view. */
    view(view: View, options: KnownOptions = {}): List<ObjectDocument<T>> {
        const { prefix, source, shard, key, index, value, wait } = options;
        return this.#list([view], { prefix, source, shard, key, index, value, wait }, options);
    }

    /** The newest object of a key; undefined if there is none. */
    latestObject(key: string, options: GetOptions = {}): Promise<TaggedObject<T> | undefined> {
        return this.#object("latest", key, options);
    }

    /** The acknowledged object of a key; undefined if there is none. */
    knownObject(key: string, options: GetOptions = {}): Promise<TaggedObject<T> | undefined> {
        return this.#object("known", key, options);
    }

    indexes(options: CallOptions = {}): List<IndexDocument> {
        return this.#list(["indexes"], {}, options);
    }

    /** The values of an index, with the number of keys of each. */
    indexValues(index: string, options: ListOptions & { prefix?: string | undefined; wait?: Duration | undefined } = {}): List<IndexValue> {
        const { prefix, wait } = options;
        return this.#list(["indexes", index], { prefix, wait }, options);
    }

    /** The events of a key, newest first. */
    history(key: string, options: ListOptions = {}): List<HistoryEvent<T>> {
        return this.#list(["history"], { key }, options);
    }

    sources(options: ListOptions = {}): List<SourceDocument> {
        return this.#list(["sources"], {}, options);
    }

    workers(options: ListOptions = {}): List<WorkerDocument> {
        return this.#list(["workers"], {}, options);
    }

    /** The first 20 groups of keys that take turns. */
    groups(options: CallOptions & { sort?: "wait" | "ready" | "leased" | undefined } = {}): Promise<GroupList> {
        return this.#get(["groups"], { sort: options.sort }, options);
    }

    /** Whether the initial list is processed or, with `resourceVersion`, everything up to that version is acknowledged. */
    synced(options: SyncedOptions = {}): Promise<Synced> {
        const { resourceVersion, wait } = options;
        return this.#get(["synced"], { resourceVersion, wait }, options);
    }

    /**
     * One stream of changes of a view. It ends when the server ends it, and throws if the connection is lost or the server refuses to continue. It does
     * not reconnect; the `Informer` does.
     */
    async *watch(options: WatchOptions = {}): AsyncGenerator<WatchRow<T>, void, void> {
        const { signal, bookmark = "15s" } = options;
        const path = ["v1", "queues", this.name, "watch"];
        const connection = new AbortController();
        const end = () => connection.abort(signal?.reason);
        signal?.throwIfAborted();
        signal?.addEventListener("abort", end, { once: true });
        try {
            const call = { method: "GET", path, query: watchQuery(options), accept: "application/x-ndjson" } as const;
            const body = await this.#transport.stream(call, connection.signal);
            for await (const line of lines(body, milliseconds(bookmark) * SILENT_INTERVALS)) {
                yield this.watchRow(line);
            }
        } catch (error) {
            throw signal?.aborted ? signal.reason : error;
        } finally {
            signal?.removeEventListener("abort", end);
            connection.abort();
        }
    }

    /**
     * The row in a line of a watch, or in the data of a server-sent event. Throws the problem of an `Error` or `Expired` row; after `Expired` the view
     * must be listed again.
     */
    watchRow(text: string): WatchRow<T> {
        let row: WatchRow<T>;
        try {
            row = this.#parse(text) as WatchRow<T>;
        } catch (error) {
            throw unexpectedReply("watch", 200, `a row is not that of a deltaq server: ${messageOf(error)}`);
        }
        if (row.problem !== undefined) {
            throw problemError(row.problem, "watch");
        }
        return row;
    }

    /** @internal */
    get notices(): Notices {
        return this.#transport.notices;
    }

    /** @internal */
    get retry(): Retry {
        return this.#transport.retry;
    }

    /** @internal */
    get hasSeveralServers(): boolean {
        return this.#transport.hasSeveralServers;
    }

    /** The URL of a watch for an `EventSource`, which can't send a token. */
    watchUrl(options: WatchOptions = {}): string {
        if (this.#transport.hasToken) {
            throw new TypeError("an EventSource can't send a token; use the transport `fetch`");
        }
        return this.#transport.url({ path: ["v1", "queues", this.name, "watch"], query: watchQuery(options) });
    }

    /** A page of changes: the rows that a watch would send now, or within `wait`. */
    watchPage(options: WatchOptions & CallOptions & { wait?: Duration | undefined; limit?: number | undefined; continue?: string | undefined } = {}): Promise<Page<WatchRow<T>>> {
        const { wait, limit, continue: token } = options;
        return this.#get(["watch"], { ...watchQuery(options), wait, limit, continue: token }, options);
    }

    #send<R>(call: Call, options: CallOptions): Promise<R> {
        const wait = call.query?.["wait"];
        const waitMs = typeof wait === "string" ? milliseconds(wait) : 0;
        const path = ["v1", "queues", this.name, ...call.path];
        return this.#transport.send({ ...call, path, waitMs }, options, this.#parse) as Promise<R>;
    }

    #get<R>(path: string[], query: Query, options: CallOptions): Promise<R> {
        return this.#send({ method: "GET", path, query }, options);
    }

    #post<R>(path: string[], query: Query, options: CallOptions, body?: unknown): Promise<R> {
        return this.#send({ method: "POST", path, query, body: body === undefined ? undefined : JSON.stringify(body) }, options);
    }

    #produce(call: string, query: Query, options: ProduceOptions & Conditions, body?: string, countsTwice = false): Promise<Produced> {
        const { source, sequence, mustExist, traceparent } = options;
        const headers = { traceparent, ...conditions(options) };
        const sent = { method: "POST", path: [call], query: { ...query, source, sequence, mustExist }, body, headers } as const;
        // A repeat of a call that was applied would be refused, because its own change is the newest one.
        const isOnce = countsTwice || isConditional(options);
        return this.#send({ ...sent, countsTwice: isOnce && sequence === undefined }, options);
    }

    async #change(method: "PUT" | "PATCH", settings: SettingsInput, options: PutOptions): Promise<TaggedSettings> {
        const headers = conditions(options);
        const countsTwice = isConditional(options);
        const query = { force: options.force };
        const call = { method, path: [], query, body: JSON.stringify(settings), headers, countsTwice, isTagged: true };
        const { document, etag } = await this.#send<Tagged<QueueDocument>>(call, options);
        return { settings: document.settings, etag };
    }

    #end<Row extends Settled>(call: string, leases: LeaseIds, options: CallOptions, fields: object = {}, query: Query = {}): Promise<SettledList<Row>> {
        const which = typeof leases === "string" ? { lease_id: leases } : { lease_ids: leases };
        return this.#results(this.#post([call], query, options, { ...which, ...fields }));
    }

    #selected(path: string[], which: Selection, { expectedCount, ...options }: SelectedOptions): Promise<{ keys: number }> {
        // If a caller without types passes an undefined error, the body selects nothing, and the server refuses it.
        const selection = Array.isArray(which) ? { keys: which } : which;
        return this.#send({ method: "POST", path, body: JSON.stringify({ ...selection, expected_count: expectedCount }), countsTwice: true }, options);
    }

    #list<I, P extends Page<I> = Page<I>>(path: string[], query: Query, options: ListOptions): List<I, P> {
        return new List(token => this.#get(path, { ...query, limit: options.limit, continue: token }, options));
    }

    async #object(view: "latest" | "known", key: string, options: GetOptions): Promise<TaggedObject<T> | undefined> {
        const query = { view, key, minResourceVersion: options.minResourceVersion };
        const call = { method: "GET", path: ["object"], query, isTagged: true } as const;
        const found = await orUndefined(this.#send<Tagged<ObjectDocument<T>>>(call, options));
        return found && { ...found.document, etag: found.etag };
    }

    #find<D>(call: string, query: Query, options: CallOptions): Promise<D | undefined> {
        return orUndefined(this.#get<D>([call], query, options));
    }

    /** The results of a call. If all of its leases had already ended, the results are in a problem document. */
    async #results<Row extends Settled>(reply: Promise<SettledList<Row>>): Promise<SettledList<Row>> {
        try {
            return await reply;
        } catch (error) {
            if (error instanceof DeltaqError && error.code === "lease-lost") {
                return error.problem as Problem & SettledList<Row>;
            }
            throw error;
        }
    }
}

/** The reply, or undefined if there is no such key. */
async function orUndefined<R>(reply: Promise<R>): Promise<R | undefined> {
    try {
        return await reply;
    } catch (error) {
        if (error instanceof DeltaqError && error.code === "key-not-found") {
            return undefined;
        }
        throw error;
    }
}

type Conditions = Pick<PutOptions, "ifMatch" | "ifAbsent">;

function conditions({ ifMatch, ifAbsent }: Conditions): Record<"if-match" | "if-none-match", string | undefined> {
    return { "if-match": ifMatch, "if-none-match": ifAbsent ? "*" : undefined };
}

function isConditional({ ifMatch, ifAbsent }: Conditions): boolean {
    return ifMatch !== undefined || ifAbsent === true;
}

/** A document with its ETag. */
interface Tagged<D> {
    document: D;
    etag: string;
}

function watchQuery({ view, resourceVersion = 0, prefix, shard, bookmark }: WatchOptions): Query {
    return { view, resourceVersion, prefix, shard, bookmark };
}
