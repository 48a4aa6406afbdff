/** Delivers the changes of a store to one handler, in order and at the handler's own pace. */

import { Signal } from "./signal.js";

/**
 * An object that was deleted while the informer was not watching, so its last state is unknown. `object` is the last state that the store had.
 */
export class DeletedFinalStateUnknown<T> {
    readonly key: string;
    readonly object: T;

    constructor(key: string, object: T) {
        this.key = key;
        this.object = object;
    }
}

/** Gets the changes of a store, one at a time. If a method returns a promise, the next change follows when the promise is settled. */
export interface ResourceEventHandler<T> {
    /** A new object. `isInInitialList` is true if the store had the object when the handler was added. */
    onAdd?: ((object: T, isInInitialList: boolean, key: string) => unknown) | undefined;
    /** A changed object, or a resync of an unchanged one. `old` is the object that the handler got last for the key. */
    onUpdate?: ((old: T, object: T, key: string) => unknown) | undefined;
    /** A deletion. An object whose last state is unknown is a `DeletedFinalStateUnknown`. */
    onDelete?: ((object: T | DeletedFinalStateUnknown<T>, key: string) => unknown) | undefined;
}

export type Notification<T> =
    | { readonly kind: "add"; readonly key: string; readonly object: T; readonly isInInitialList: boolean }
    | { readonly kind: "update"; readonly key: string; readonly old: T; readonly object: T; readonly isResync?: boolean }
    | { readonly kind: "delete"; readonly key: string; readonly object: T | DeletedFinalStateUnknown<T> }
    /** Marks the end of the initial objects. */
    | { readonly kind: "synced" };

/** Something that has an initial list to process. */
export interface Syncable {
    hasSynced(): boolean;
    /** Resolves once `hasSynced()` is true. Rejects if it can no longer become true. */
    whenSynced(options?: { signal?: AbortSignal | undefined }): Promise<void>;
}

/** A handler of an informer. */
export class Registration<T> implements Syncable {
    readonly #handler: ResourceEventHandler<T>;
    readonly #onError: (error: unknown, key?: string) => void;
    readonly #changed = new Signal();
    #pending: Notification<T>[] = [];
    #isRunning = false;
    #hasSynced = false;
    #ended: Error | undefined;
    #resync: ReturnType<typeof setInterval> | undefined;

    /** Use `Informer.addHandler`. */
    constructor(handler: ResourceEventHandler<T>, onError: (error: unknown, key?: string) => void) {
        this.#handler = handler;
        this.#onError = onError;
    }

    /** Whether the handler has processed the objects that the store had when the handler was added. */
    hasSynced(): boolean {
        return this.#hasSynced;
    }

    whenSynced({ signal }: { signal?: AbortSignal | undefined } = {}): Promise<void> {
        return until(this.#changed, () => this.#hasSynced, () => this.#ended, signal);
    }

    /** Changes that wait for the handler. */
    get pending(): number {
        return this.#pending.length;
    }

    /** Resolves once fewer than `count` changes wait. For the informer. */
    async room(count: number): Promise<void> {
        await this.#changed.until(() => this.pending < count || this.#ended !== undefined);
    }

    /** Adds changes. For the informer. */
    push(notifications: Iterable<Notification<T>>): void {
        if (this.#ended !== undefined) {
            return;
        }
        for (const notification of notifications) {
            this.#pending.push(notification);
        }
        if (!this.#isRunning) {
            this.#isRunning = true;
            void this.#deliver();
        }
    }

    /** Calls `resync` in each period. For the informer. */
    resyncEvery(ms: number, resync: () => void): void {
        this.#resync = setInterval(() => {
            // If a handler is slower than the period, no second resync waits behind the first.
            if (!this.#pending.some(notification => notification.kind === "update" && notification.isResync)) {
                resync();
            }
        }, ms);
    }

    /** Stops the deliveries. For the informer. */
    end(reason: Error): void {
        this.#ended ??= reason;
        this.#pending = [];
        clearInterval(this.#resync);
        this.#changed.notify();
    }

    async #deliver(): Promise<void> {
        // The array is taken as a whole, because removing elements one by one from its front would copy it each time.
        while (this.#pending.length > 0) {
            const batch = this.#pending;
            this.#pending = [];
            for (let at = 0; at < batch.length && this.#ended === undefined; at += 1) {
                await this.#deliverOne(batch[at] as Notification<T>);
            }
            this.#changed.notify();
        }
        this.#isRunning = false;
    }

    async #deliverOne(notification: Notification<T>): Promise<void> {
        if (notification.kind === "synced") {
            this.#hasSynced = true;
            this.#changed.notify();
            return;
        }
        const { key } = notification;
        try {
            if (notification.kind === "add") {
                await this.#handler.onAdd?.(notification.object, notification.isInInitialList, key);
            } else if (notification.kind === "update") {
                await this.#handler.onUpdate?.(notification.old, notification.object, key);
            } else {
                await this.#handler.onDelete?.(notification.object, key);
            }
        } catch (error) {
            this.#onError(error, key);
        }
    }
}

/** Waits for a condition. Rejects if the condition can no longer hold, or if the signal is aborted. */
export async function until(
    changed: Signal,
    condition: () => boolean,
    ended: () => Error | undefined,
    signal: AbortSignal | undefined,
): Promise<void> {
    await changed.until(() => condition() || ended() !== undefined || signal?.aborted === true, signal);
    if (!condition()) {
        throw signal?.aborted ? signal.reason : ended();
    }
}
