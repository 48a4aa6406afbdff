/** Lists a view and watches it, and handles lost connections, restarts of the server and expired versions. */

import type { ObjectDocument, View, WatchRow } from "./documents.js";
import { type Duration, milliseconds } from "./duration.js";
import { ConnectionError, DeltaqError, isAbsent, isTransient } from "./error.js";
import type { KnownOptions, WatchOptions } from "./options.js";
import type { Queue } from "./queue.js";
import { askedMs, Backoff, FOR_EVER, ONCE, sleep } from "./retry.js";
import { Signal } from "./signal.js";
import type { Repeated } from "./transport.js";

/** Number of objects in one page of a list. */
const PAGE = 1_000;
/** Maximum number of rows of an `EventSource` that wait for the program. */
const EVENTS_MAX = 10_000;
/** An `EventSource` that is silent for this many bookmark intervals counts as lost. */
const SILENT_INTERVALS = 2.5;

/** How changes arrive: as a stream of `fetch`, which can send a token, or by the browser's `EventSource`. */
export type WatchTransport = "fetch" | "eventsource";

export interface WatcherOptions {
    view: View;
    prefix: string | undefined;
    shard: string | undefined;
    bookmark: Duration;
    transport: WatchTransport;
    /** Gets the errors after which the watcher continues. */
    onError: (error: unknown) => void;
}

/** An event of a watcher. */
export type WatcherEvent<T> =
    /** The complete list of the objects in the view. */
    | { readonly kind: "list"; readonly objects: ReadonlyMap<string, ObjectDocument<T>> }
    /** A change of a key. It may be older than the list, and may be a deletion of a key that was never there. */
    | { readonly kind: "row"; readonly key: string; readonly row: WatchRow<T> };

/** The events of a view until the signal is aborted. Throws after an error that a retry cannot solve. */
export async function* watcher<T>(queue: Queue<T>, options: WatcherOptions, signal: AbortSignal): AsyncGenerator<WatcherEvent<T>, void, void> {
    const backoff = new Backoff(queue.retry);
    /** The version up to which the program has all changes. The server refuses it if the queue was deleted, or if the queue has lost that version. */
    let version: number | undefined;
    /** The lists since the last row. */
    let lists = 0;
    while (!signal.aborted) {
        try {
            if (version === undefined) {
                const listed = await list(queue, options, signal);
                lists += 1;
                yield { kind: "list", objects: listed.objects };
                version = listed.version;
            }
            const from = (): WatchOptions => ({ ...options, resourceVersion: version, signal });
            const rows = options.transport === "fetch" ? queue.watch(from()) : eventRows(queue, from(), options.bookmark);
            const before: number | undefined = version;
            let hasRows = false;
            for await (const row of rows) {
                hasRows = true;
                lists = 0;
                backoff.reset();
                if (row.key !== undefined) {
                    yield { kind: "row", key: row.key, row };
                }
                version = row.resource_version ?? version;
            }
            if (options.transport === "eventsource") {
                // An EventSource does not report why it has ended. The reply to a request for a page of the same watch shows the reason.
                await queue.watchPage({ ...from(), limit: 1, retry: ONCE });
            }
            if (!hasRows) {
                throw new ConnectionError(`the watch of queue ${queue.name} has ended without a row`);
            }
            if (version === before) {
                // The server ends each stream after some minutes. After one that has brought nothing new, the next one waits: it may end at once, too.
                await sleep(backoff.after(undefined), signal);
            }
        } catch (error) {
            if (signal.aborted) {
                return;
            }
            if (isExpired(error)) {
                version = undefined;
            } else if (!isTransient(error) && !isAbsent(error)) {
                throw error;
            }
            // A server may forget a version between the list and the first watch after it, which a new list repairs.
            if (!isExpired(error) || lists !== 1) {
                options.onError(error);
            }
            // The first list after an expired version begins at once. Repeated lists wait.
            const isAtOnce = isExpired(error) && backoff.failures === 0;
            const pause = backoff.after(error);
            await sleep(isAtOnce ? askedMs(error) : pause, signal).catch(() => undefined);
        }
    }
}

/** All objects, and the version from which a watch misses nothing: that of the first page. */
async function list<T>(
    queue: Queue<T>,
    { view, prefix, shard, onError }: WatcherOptions,
    signal: AbortSignal,
): Promise<{ objects: Map<string, ObjectDocument<T>>; version: number }> {
    const objects = new Map<string, ObjectDocument<T>>();
    let version: number | undefined;
    // A page is repeated without limit, because a list that began again after each fault might never end.
    const selection: KnownOptions & Repeated = { prefix, shard, limit: PAGE, signal, retry: FOR_EVER, onRepeat: onError };
    for await (const page of queue.view(view, selection).pages()) {
        version ??= page.resource_version;
        for (const item of page.items) {
            objects.set(item.key, item);
        }
    }
    return { objects, version: version ?? 0 };
}

/**
 * The rows of an `EventSource`, until it closes. An `EventSource` reconnects by itself after a lost connection, but not after a reply that is not a stream.
 */
async function* eventRows<T>(queue: Queue<T>, options: WatchOptions, bookmark: Duration): AsyncGenerator<WatchRow<T>, void, void> {
    const { signal } = options;
    const source = new EventSource(queue.watchUrl(options));
    const changed = new Signal();
    const texts: string[] = [];
    let lastMs = performance.now();
    const silentMs = milliseconds(bookmark) * SILENT_INTERVALS;
    const timer = setInterval(() => changed.notify(), Math.min(1_000, silentMs));
    const take = (event: MessageEvent<string>) => {
        texts.push(event.data);
        lastMs = performance.now();
        if (texts.length >= EVENTS_MAX) {
            // The rows that follow are sent again from the version of the last row, so the memory stays bounded.
            source.close();
        }
        changed.notify();
    };
    for (const type of ["Added", "Updated", "Deleted", "Bookmark", "Error", "Expired"]) {
        source.addEventListener(type, take);
    }
    source.onerror = () => {
        if (queue.hasSeveralServers) {
            // An EventSource would connect to the same server again and again.
            source.close();
        }
        changed.notify();
    };
    try {
        for (;;) {
            const isSilent = () => performance.now() - lastMs > silentMs;
            const isOver = () => signal?.aborted || source.readyState === source.CLOSED || isSilent();
            await changed.until(() => texts.length > 0 || isOver() === true, signal);
            signal?.throwIfAborted();
            if (texts.length === 0) {
                return;
            }
            for (const text of texts.splice(0)) {
                yield queue.watchRow(text);
            }
        }
    } finally {
        clearInterval(timer);
        source.close();
    }
}

function isExpired(error: unknown): boolean {
    return error instanceof DeltaqError && error.code === "expired";
}
