/** Delivers the keys of a queue to a handler. */

import type { PoppedItem, With } from "./documents.js";
import type { Duration } from "./duration.js";
import type { Context } from "./leases.js";
import type { Outcome } from "./outcome.js";
import type { Queue } from "./queue.js";
import type { RetryOptions } from "./retry.js";
import { WorkerRun } from "./worker-run.js";

/** Works on one key. Returning nothing is an `Ack`; throwing is a `Nack` with the message of the error. */
export type Handler<T> = (item: PoppedItem<T>, context: Context) => Promise<Outcome | void> | Outcome | void;

/** A key, and what the handler knows about its lease. */
export interface Delivery<T> {
    readonly item: PoppedItem<T>;
    readonly context: Context;
}

/** Works on many keys at once. The result is one outcome for all keys, or a list with an outcome for each key, in order. */
export type BatchHandler<T> = (
    deliveries: readonly Delivery<T>[],
) => Promise<Outcome | readonly Outcome[] | void> | Outcome | readonly Outcome[] | void;

export interface WorkerOptions {
    /** Number of handlers that run at once. Default 1. */
    concurrency?: number;
    /** Maximum number of keys in one pop or, with `Worker.batches`, in one batch: up to 1,000. Default 100. */
    batch?: number;
    /** The name of the worker, shown with its leases. */
    name?: string;
    /** The length of the leases. Default: the setting of the queue. The lease of a running handler is extended each time a third of it has passed. */
    leaseDuration?: Duration;
    /** How long a pop waits for a key, at most 55s. Default 20s. */
    wait?: Duration;
    /** What each item has in addition: the object that was acknowledged last, the difference from it to the newest object, or both. */
    with?: With;
    /** How long running handlers may continue after the stop, in milliseconds. Default 10,000. */
    graceMs?: number;
    /** The pauses after failed calls. A failed call is repeated for as long as the worker runs. */
    retry?: Partial<Pick<RetryOptions, "firstMs" | "maxMs">>;
    /** Gets each error of a handler (with the key), and each error after which a call is repeated. */
    onError?: (error: unknown, key?: string) => void;
}

/**
 * A worker of a queue. It settles each key as its handler says, if possible together with the next pop. It extends the leases of running handlers, and
 * repeats failed calls. A queue delivers each key to one worker at a time.
 */
export class Worker<T> {
    readonly #queue: Queue<T>;
    readonly #handler: BatchHandler<T>;
    readonly #isBatch: boolean;
    readonly #options: WorkerOptions;

    constructor(queue: Queue<T>, handler: Handler<T>, options?: WorkerOptions);
    constructor(queue: Queue<T>, handler: BatchHandler<T>, options: WorkerOptions | undefined, isBatch: true);
    constructor(queue: Queue<T>, handler: Handler<T> | BatchHandler<T>, options: WorkerOptions = {}, isBatch = false) {
        checkCount("concurrency", options.concurrency, Infinity);
        checkCount("batch", options.batch, 1_000);
        this.#queue = queue;
        this.#isBatch = isBatch;
        this.#handler = isBatch ? (handler as BatchHandler<T>) : each(handler as Handler<T>);
        this.#options = options;
    }

    /** A worker whose handler gets up to `batch` keys at once. `concurrency` is the number of batches. */
    static batches<T>(queue: Queue<T>, handler: BatchHandler<T>, options?: WorkerOptions): Worker<T> {
        return new Worker(queue, handler, options, true);
    }

    /**
     * Works until the queue is closed and drained, or until the signal is aborted. Then the worker takes no more keys, waits `graceMs` for its
     * handlers, and settles their keys. It throws after an error that a retry can't solve, such as an unknown token.
     */
    async run({ signal }: { signal?: AbortSignal } = {}): Promise<void> {
        await new WorkerRun(this.#queue, this.#handler, this.#isBatch, this.#options).run(signal);
    }
}

function each<T>(handler: Handler<T>): BatchHandler<T> {
    return ([delivery]) => delivery && handler(delivery.item, delivery.context);
}

function checkCount(name: string, value: number | undefined, max: number): void {
    if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value <= max)) {
        throw new RangeError(`${name} is ${value}; it must be a whole number from 1${max === Infinity ? "" : ` to ${max}`}`);
    }
}
