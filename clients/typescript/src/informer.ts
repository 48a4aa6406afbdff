/** A view of a queue in memory: a store with indexes, and handlers for its changes. The names are those of client-go's SharedIndexInformer. */

import { type Defaults, withDefaults } from "./defaults.js";
import type { ObjectDocument, View } from "./documents.js";
import { checkDuration, type Duration, milliseconds } from "./duration.js";
import { isAbsent, messageOf } from "./error.js";
import { DeletedFinalStateUnknown, type Notification, Registration, type ResourceEventHandler, type Syncable, until } from "./listener.js";
import type { Queue } from "./queue.js";
import { Signal } from "./signal.js";
import { type Indexes, type ReadStore, Store } from "./store.js";
import { type WatcherEvent, type WatcherOptions, type WatchTransport, watcher } from "./watcher.js";

/** Maximum number of changes that wait for a handler. At this limit the informer stops reading, and the server merges the changes of each key. */
const PENDING_MAX = 10_000;

export interface InformerOptions<T> {
    /** `latest` (the default) has the newest objects, `known` those that workers have acknowledged. */
    view?: View | undefined;
    /** Only keys with this prefix. */
    prefix?: string | undefined;
    /** Only one part of all keys, such as `0/4`. */
    shard?: string | undefined;
    /** The indexes of the store. */
    indexes?: Indexes<T> | undefined;
    /** The resync period of handlers that do not set one. Default: no resync. */
    resync?: Duration | undefined;
    /** The interval of bookmarks. A stream that is silent for two and a half of them is opened again. Default 15s. */
    bookmark?: Duration | undefined;
    /** `fetch` (the default) works everywhere; `eventsource` needs a browser and a server without tokens. */
    transport?: WatchTransport | undefined;
    /**
     * Gets each error of a handler (with the key), and each error after which the informer reconnects. If it throws, the informer ends with that error.
     * Default: warnings of the logger of the client, at most one a minute for errors of calls.
     */
    onError?: ((error: unknown, key?: string) => void) | undefined;
}

/** The defaults of `InformerOptions`. */
export const INFORMER_DEFAULTS: Defaults<InformerOptions<unknown>> = {
    view: "latest",
    prefix: undefined,
    shard: undefined,
    indexes: undefined,
    resync: undefined,
    bookmark: "15s",
    transport: "fetch",
    onError: undefined,
};

/**
 * Keeps a store in step with a view of a queue, and calls handlers for each change.
 *
 * Invariant: once nothing is pending, each handler has been notified of exactly the contents of the store.
 */
export class Informer<T> implements Syncable {
    readonly #queue: Queue<T>;
    readonly #options: InformerOptions<T>;
    readonly #store: Store<T>;
    readonly #registrations = new Set<Registration<T>>();
    readonly #changed = new Signal();
    #hasSynced = false;
    #isStarted = false;
    #ended: Error | undefined;
    /** Aborted when the informer stops. */
    readonly #stop = new AbortController();
    /** The first error that `onError` has thrown. */
    #failure: { readonly error: unknown } | undefined;

    constructor(queue: Queue<T>, options: InformerOptions<T> = {}) {
        if (typeof queue?.watch !== "function") {
            throw new TypeError(`the queue of an informer is ${kindOf(queue)}; it must be a Queue, such as that of client.queue("prices")`);
        }
        checkDuration("resync", options.resync);
        checkDuration("bookmark", options.bookmark);
        checkFunctions("indexes", options.indexes);
        checkFunctions("informer", { onError: options.onError });
        if (options.transport === "eventsource") {
            if (!("EventSource" in globalThis)) {
                throw new TypeError("this runtime has no EventSource; use the transport `fetch`");
            }
            queue.watchUrl();
        }
        this.#queue = queue;
        this.#options = options;
        this.#store = new Store(options.indexes);
    }

    /** The objects of the view. They may be newer than those that a handler has been notified of. */
    get store(): ReadStore<T> {
        return this.#store;
    }

    /** Whether the store has had all objects of the view. */
    hasSynced(): boolean {
        return this.#hasSynced;
    }

    whenSynced({ signal }: { signal?: AbortSignal | undefined } = {}): Promise<void> {
        return until(this.#changed, () => this.#hasSynced, () => this.#ended, signal);
    }

    /** Adds a handler. The informer may already run: the handler first gets an `onAdd` for each object of the store. */
    addHandler(handler: ResourceEventHandler<T>, { resync = this.#options.resync }: { resync?: Duration | undefined } = {}): Registration<T> {
        if (typeof handler !== "object" || handler === null) {
            throw new TypeError(`the handler is ${kindOf(handler)}; it must be an object with onAdd, onUpdate or onDelete`);
        }
        const { onAdd, onUpdate, onDelete } = handler;
        checkFunctions("handler", { onAdd, onUpdate, onDelete });
        checkDuration("resync", resync);
        const registration = new Registration(handler, (error, key) => this.#report(error, key));
        this.#registrations.add(registration);
        if (this.#ended !== undefined) {
            registration.end(this.#ended);
            return registration;
        }
        if (this.#hasSynced) {
            registration.push(this.#initial());
        }
        if (resync !== undefined) {
            registration.resyncEvery(milliseconds(resync), () => registration.push(this.#resync()));
        }
        return registration;
    }

    /** Removes a handler, which gets no further changes. */
    removeHandler(registration: Registration<T>): void {
        this.#registrations.delete(registration);
        registration.end(new Error("the handler was removed"));
    }

    /**
     * Follows the view until the signal is aborted. It connects again after each error that a retry can solve, and waits for a queue that does
     * not exist. It throws after other errors, such as an unknown token. An informer runs once.
     */
    async run({ signal }: { signal?: AbortSignal | undefined } = {}): Promise<void> {
        if (this.#isStarted) {
            throw new Error("an informer runs once; create another one");
        }
        this.#isStarted = true;
        const { view, prefix, shard, bookmark, transport } = withDefaults(INFORMER_DEFAULTS as Defaults<InformerOptions<T>>, this.#options) as WatcherOptions;
        const options = { view, prefix, shard, bookmark, transport, onError: (error: unknown) => this.#report(error) };
        const stop = () => this.#stop.abort();
        signal?.addEventListener("abort", stop, { once: true });
        if (signal?.aborted) {
            stop();
        }
        try {
            for await (const event of watcher(this.#queue, options, this.#stop.signal)) {
                this.#apply(event);
                await Promise.all([...this.#registrations].map(registration => registration.room(PENDING_MAX)));
                if (this.#stop.signal.aborted) {
                    break;
                }
            }
            if (this.#failure !== undefined) {
                throw this.#failure.error;
            }
            this.#end(new Error("the informer has stopped"));
        } catch (error) {
            this.#end(error);
            throw error;
        } finally {
            signal?.removeEventListener("abort", stop);
        }
    }

    /** Calls `onError`, or warns. If that throws, the informer ends with its error. */
    #report(error: unknown, key?: string): void {
        const { name, notices } = this.#queue;
        const warn = () => {
            if (key !== undefined) {
                notices.handlerFailed(error, key, `an informer of the queue "${name}"`);
            } else {
                notices.failed(isAbsent(error) ? new Error("the queue does not exist yet") : error, `the watch of the queue "${name}"`);
            }
        };
        const { onError = warn } = this.#options;
        try {
            onError(error, key);
        } catch (failure) {
            this.#failure ??= { error: failure };
            this.#end(failure);
            this.#stop.abort();
        }
    }

    #end(error: unknown): void {
        const reason = error instanceof Error ? error : new Error(messageOf(error));
        this.#ended ??= reason;
        for (const registration of this.#registrations) {
            registration.end(reason);
        }
        this.#changed.notify();
    }

    #apply(event: WatcherEvent<T>): void {
        if (event.kind === "list") {
            this.#applyList(event.objects);
            return;
        }
        const { key, row } = event;
        const stored = this.#store.stored(key);
        const version = row.resource_version ?? 0;
        // The pages of a list may be newer than the version from which the watch begins.
        if (stored !== undefined && version <= stored.resource_version) {
            return;
        }
        if (row.type === "Deleted") {
            if (stored !== undefined) {
                const isKnown = row.final_state_unknown !== true && row.object != null;
                const object = isKnown ? (row.object as T) : new DeletedFinalStateUnknown(key, stored.object);
                this.#store.delete(key);
                this.#notify([{ kind: "delete", key, object }]);
            }
        } else if (row.type === "Added" || row.type === "Updated") {
            this.#notify([this.#set(key, row.object as T, version)]);
        }
    }

    #applyList(objects: ReadonlyMap<string, ObjectDocument<T>>): void {
        const isFirst = !this.#hasSynced;
        const notifications: Notification<T>[] = [];
        for (const key of this.#store.keys()) {
            if (!objects.has(key)) {
                const object = new DeletedFinalStateUnknown(key, this.#store.get(key) as T);
                this.#store.delete(key);
                notifications.push({ kind: "delete", key, object });
            }
        }
        for (const [key, { object, resource_version }] of objects) {
            notifications.push(this.#set(key, object, resource_version));
        }
        if (isFirst) {
            this.#hasSynced = true;
            for (const registration of this.#registrations) {
                registration.push(this.#initial());
            }
            this.#changed.notify();
        } else {
            this.#notify(notifications);
        }
    }

    #set(key: string, object: T, resource_version: number): Notification<T> {
        const stored = this.#store.stored(key);
        this.#store.set(key, { object, resource_version });
        return stored === undefined
            ? { kind: "add", key, object, isInInitialList: false }
            : { kind: "update", key, old: stored.object, object };
    }

    #notify(notifications: Notification<T>[]): void {
        for (const registration of this.#registrations) {
            registration.push(notifications);
        }
    }

    *#initial(): Generator<Notification<T>, void, void> {
        for (const [key, object] of this.#store.entries()) {
            yield { kind: "add", key, object, isInInitialList: true };
        }
        yield { kind: "synced" };
    }

    *#resync(): Generator<Notification<T>, void, void> {
        for (const [key, object] of this.#store.entries()) {
            yield { kind: "update", key, old: object, object, isResync: true };
        }
    }
}

/** Waits until informers and handlers have processed their initial lists. Rejects if one of them ends before that, or if the signal is aborted. */
export async function waitForCacheSync(syncables: Syncable | readonly Syncable[], options: { signal?: AbortSignal | undefined } = {}): Promise<void> {
    const list: readonly Syncable[] = "hasSynced" in syncables ? [syncables] : syncables;
    await Promise.all(list.map(syncable => syncable.whenSynced(options)));
}

function kindOf(value: unknown): string {
    return value === undefined || value === null ? String(value) : typeof value;
}

/** Throws if a member is there, and is no function. */
function checkFunctions(name: string, functions: object | undefined): void {
    for (const [member, value] of Object.entries(functions ?? {})) {
        if (value !== undefined && typeof value !== "function") {
            throw new TypeError(`${member} of ${name} is ${kindOf(value)}; it must be a function`);
        }
    }
}
