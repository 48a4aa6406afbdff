/** Delivers the keys of a queue to a handler. */

import { BREAKER_MAX } from "./breaker.js";
import { type Defaults, withDefaults } from "./defaults.js";
import type { PoppedItem } from "./documents.js";
import { checkDuration, type Duration } from "./duration.js";
import type { Context } from "./leases.js";
import type { Middleware } from "./middleware.js";
import type { Outcome } from "./outcome.js";
import type { Queue } from "./queue.js";
import { WorkerRun } from "./worker-run.js";

/** Works on one key. Returning nothing is an `Ack`; throwing is a `Nack` with the message of the error, or the outcome that is thrown. */
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

/** What the middleware of a worker is around: a handler, with an outcome for each key. Without `Worker.batches`, it gets one key. */
export type Work = (deliveries: readonly Delivery<unknown>[]) => Promise<readonly Outcome[]>;

/** A pause of a worker whose keys fail. */
export interface Pause {
    /** How long the worker waits before it tries one key. */
    readonly ms: number;
    /** The failures since the last success. */
    readonly failures: number;
}

export interface WorkerOptions {
    /** Number of handlers that run at once. Default 1. */
    concurrency?: number | undefined;
    /** Maximum number of keys in one pop: up to 1,000. Default: `concurrency`. With `Worker.batches`, the keys of one batch; default 100. */
    batch?: number | undefined;
    /** The name of the worker, shown with its leases. Default: a name that no other worker has. */
    name?: string | undefined;
    /** The length of the leases. Default: the setting of the queue. The lease of a running handler is extended each time a third of it has passed. */
    leaseDuration?: Duration | undefined;
    /** How long a pop waits for a key, at most 55s. Default 20s. */
    wait?: Duration | undefined;
    /** The only group whose keys are taken, outside its turns. The empty text is the group without a name. */
    group?: string | undefined;
    /** Whether each item has the object that was acknowledged last. */
    withKnown?: boolean | undefined;
    /** Whether each item has the difference from that object to the newest one. */
    withDiff?: boolean | undefined;
    /** How long running handlers may continue after the stop. Default 30s. */
    grace?: Duration | undefined;
    /**
     * The number of failures in a row, of different keys, that pause the worker, up to 1,000. A nack is a failure, also by an exception; a key that is done or
     * rejected ends the row. After a pause of 1s the worker tries one key; each further failure doubles the pause, up to 1m, and a success ends it.
     */
    breaker?: number | undefined;
    /** Gets each pause by `breaker`, and undefined when the worker goes on. Default: a warning of the logger of the client. */
    onPause?: ((pause: Pause | undefined) => void) | undefined;
    /** Functions around the handler. The first is the outermost. */
    middleware?: readonly Middleware<Work>[] | undefined;
    /**
     * Gets each error of a handler (with the key), and each error after which a call is repeated. If it throws, the worker ends with that error. Default:
     * warnings of the logger of the client, also for each key that is parked, and at most one a minute for errors of calls.
     */
    onError?: ((error: unknown, key?: string) => void) | undefined;
}

/** The defaults of `WorkerOptions`. */
export const WORKER_DEFAULTS: Defaults<WorkerOptions> = {
    concurrency: 1,
    batch: undefined,
    name: undefined,
    leaseDuration: undefined,
    wait: "20s",
    group: undefined,
    withKnown: false,
    withDiff: false,
    grace: "30s",
    breaker: undefined,
    onPause: undefined,
    middleware: undefined,
    onError: undefined,
};

/** Keys of a batch by default. */
const BATCH = 100;

/**
 * A worker of a queue. It settles each key as its handler says, if possible together with the next pop. It extends the leases of running handlers, and
 * repeats failed calls. A queue delivers each key to one worker at a time.
 */
export class Worker<T> {
    readonly #queue: Queue<T>;
    readonly #handler: BatchHandler<T>;
    readonly #isBatch: boolean;
    readonly #options: Defaults<WorkerOptions>;

    constructor(queue: Queue<T>, handler: Handler<T>, options?: WorkerOptions);
    constructor(queue: Queue<T>, handler: BatchHandler<T>, options: WorkerOptions | undefined, isBatch: true);
    constructor(queue: Queue<T>, handler: Handler<T> | BatchHandler<T>, options: WorkerOptions = {}, isBatch = false) {
        if (typeof queue?.pop !== "function") {
            const kind = queue === undefined || queue === null ? String(queue) : typeof queue;
            throw new TypeError(`the queue of a worker is ${kind}; it must be a Queue, such as that of client.queue("prices")`);
        }
        checkHandler(handler, isBatch ? 1 : 2);
        for (const name of ["leaseDuration", "wait", "grace"] as const) {
            checkDuration(name, options[name]);
        }
        for (const name of ["onError", "onPause"] as const) {
            if (options[name] !== undefined && typeof options[name] !== "function") {
                throw new TypeError(`${name} is ${typeof options[name]}; it must be a function`);
            }
        }
        checkCount("concurrency", options.concurrency, Infinity);
        checkCount("batch", options.batch, 1_000);
        checkCount("breaker", options.breaker, BREAKER_MAX);
        this.#queue = queue;
        this.#isBatch = isBatch;
        this.#handler = isBatch ? (handler as BatchHandler<T>) : each(handler as Handler<T>);
        const given = withDefaults({ ...WORKER_DEFAULTS, name: uniqueName() }, options);
        this.#options = { ...given, batch: given.batch ?? (isBatch ? BATCH : Math.min(given.concurrency ?? 1, 1_000)) };
    }

    /** @internal */
    get options(): Defaults<WorkerOptions> {
        return this.#options;
    }

    /** A worker whose handler gets up to `batch` keys at once. `concurrency` is the number of batches. */
    static batches<T>(queue: Queue<T>, handler: BatchHandler<T>, options?: WorkerOptions): Worker<T> {
        return new Worker(queue, handler, options, true);
    }

    /**
     * Works until the queue is closed and drained, or until the signal is aborted. Then the worker takes no more keys, waits `grace` for its
     * handlers, and settles their keys. It throws after an error that a retry can't solve, such as an unknown token.
     */
    async run({ signal }: { signal?: AbortSignal | undefined } = {}): Promise<void> {
        await new WorkerRun(this.#queue, this.#handler, this.#isBatch, this.#options).run(signal);
    }
}

function each<T>(handler: Handler<T>): BatchHandler<T> {
    return ([delivery]) => delivery && handler(delivery.item, delivery.context);
}

/** A name that no other worker has. */
function uniqueName(): string {
    // A page has no process.
    const { process } = globalThis as { process?: { pid?: number } };
    return [process?.pid ?? "page", crypto.randomUUID().slice(0, 6)].join("-");
}

/** Throws if a worker can't call the handler with this number of arguments. */
function checkHandler(handler: unknown, count: number): void {
    const wanted = count === 1 ? "a list of deliveries" : "an item and a context";
    if (typeof handler !== "function") {
        throw new TypeError(`the handler is ${String(handler)}; it must be a function of ${wanted}`);
    }
    if (handler.length > count) {
        throw new TypeError(`the handler needs ${handler.length} arguments; it gets ${wanted}`);
    }
}

function checkCount(name: string, value: number | undefined, max: number): void {
    if (value !== undefined && !(Number.isInteger(value) && value >= 1 && value <= max)) {
        throw new RangeError(`${name} is ${value}; it must be a whole number from 1${max === Infinity ? "" : ` to ${max}`}`);
    }
}
