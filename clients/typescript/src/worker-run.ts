/**
 * One run of a worker: a loop that pops, a loop that settles while a pop waits, and the jobs, which are running handlers.
 *
 * Invariant: a lease is settled at most once, by the outcome of its handler, and never after it was lost.
 */

import { Breaker } from "./breaker.js";
import type { Defaults } from "./defaults.js";
import type { Popped, PoppedItem, Settle, Settled } from "./documents.js";
import { milliseconds } from "./duration.js";
import { DeltaqError, isAbsent, isTransient } from "./error.js";
import { Leases } from "./leases.js";
import { wrap } from "./middleware.js";
import { Ack, bounded, checkOutcome, isOutcome, type Outcome, Release, suited, thrown } from "./outcome.js";
import type { PopOptions } from "./options.js";
import type { Queue } from "./queue.js";
import { absentBackoff, askedMs, Backoff, ONCE, sleep } from "./retry.js";
import { Signal } from "./signal.js";
import type { BatchHandler, Delivery, Work, WorkerOptions } from "./worker.js";

/** Maximum number of leases in one settle. */
const SETTLE_MAX = 10_000;
/** How long aborted handlers may take to end, in milliseconds. */
const ABORTED_MS = 1_000;
/** How long the last settles may take after the stop and the grace period, in milliseconds. */
export const LAST_SETTLES_MS = 5_000;

/** The longest random pause after the stop, in milliseconds. */
const STOPPING_PAUSE_MS_MAX = 500;

/** A settle, and the key of its lease. */
interface Sent {
    readonly key: string;
    readonly settle: Settle;
}

export class WorkerRun<T> {
    readonly #queue: Queue<T>;
    /** The handler with its middleware. */
    readonly #handle: Work;
    readonly #isBatch: boolean;
    readonly #options: Defaults<WorkerOptions>;
    readonly #pauses: { firstMs: number; maxMs: number };
    readonly #leases: Leases;
    readonly #breaker: Breaker;
    /** Wakes the worker at the end of a pause. */
    #pauseEnd: ReturnType<typeof setTimeout> | undefined;
    /** Outcomes that were not sent yet. */
    readonly #outbox: Sent[] = [];
    /** Aborted when the worker must not take more keys. */
    readonly #stop = new AbortController();
    /** Aborted when the worker must not send anything more. */
    readonly #end = new AbortController();
    /** Notified when a job has ended, and when one of the flags has changed. */
    readonly #changed = new Signal();
    #jobs = 0;
    #isPopping = false;
    /** Whether no further outcome can arrive from a pop or a job. */
    #isDrained = false;
    /** The first error that `onError` has thrown. */
    #failure: { readonly error: unknown } | undefined;

    constructor(queue: Queue<T>, handler: BatchHandler<T>, isBatch: boolean, options: Defaults<WorkerOptions>) {
        this.#queue = queue;
        this.#handle = wrap(worked(handler), options.middleware);
        this.#isBatch = isBatch;
        this.#options = options;
        this.#breaker = new Breaker(options.breaker);
        this.#pauses = queue.retry;
        this.#leases = new Leases(queue as Queue<unknown>, options.leaseDuration, this.#pauses, error => this.#report(error, "extend"));
    }

    async run(signal: AbortSignal | undefined): Promise<void> {
        const stop = () => this.#stop.abort();
        signal?.addEventListener("abort", stop, { once: true });
        if (signal?.aborted) {
            stop();
        }
        const grace = new Grace(this.#stop.signal, milliseconds(this.#options.grace ?? "0s"), {
            over: () => this.#leases.abort(new Error("the worker stops, and its grace period is over")),
            abandon: () => this.#drained(),
            end: () => this.#end.abort(new Error("the worker has stopped")),
        });
        try {
            const settling = this.#settleLoop();
            settling.catch(stop);
            try {
                await this.#popLoop();
            } catch (error) {
                stop();
                throw error;
            } finally {
                await this.#changed.until(() => this.#jobs === 0 || this.#isDrained);
                this.#drained();
                await settling;
            }
            if (this.#failure !== undefined) {
                throw this.#failure.error;
            }
        } finally {
            grace.clear();
            clearTimeout(this.#pauseEnd);
            this.#leases.stop();
            signal?.removeEventListener("abort", stop);
        }
    }

    /** Reports a failed call. If `onError` throws, the worker still settles its keys, and then ends with that error. */
    #report(error: unknown, call: string): void {
        const { onError } = this.#options;
        const { name, notices } = this.#queue;
        this.#call(() => (onError === undefined ? notices.failed(error, `the ${call} of the queue "${name}"`) : onError(error)));
    }

    /** Reports a failure of the handler. */
    #reportFailure(error: unknown, { key, attempt }: PoppedItem<T>): void {
        const { onError } = this.#options;
        const { name, notices } = this.#queue;
        this.#call(() => (onError === undefined ? notices.handlerFailed(error, key, `queue "${name}", attempt ${attempt}`) : onError(error, key)));
    }

    /** Warns of the keys that a settle has parked. A worker with `onError` has got the failures of their handlers. */
    #warnOfParked(sent: readonly Sent[], settled: readonly Settled[]): void {
        const parked = new Set(settled.filter(result => "parked" in result && result.parked === true).map(result => result.lease_id));
        if (this.#options.onError !== undefined || parked.size === 0) {
            return;
        }
        const { name, notices } = this.#queue;
        for (const { key, settle } of sent.filter(({ settle }) => parked.has(settle.lease_id as string))) {
            this.#call(() => notices.warn(`the key "${key}" of the queue "${name}" is parked: ${settle.error ?? "without an error"}`));
        }
    }

    #call(report: () => void): void {
        try {
            report();
        } catch (failure) {
            this.#failure ??= { error: failure };
            this.#stop.abort();
        }
    }

    #drained(): void {
        this.#isDrained = true;
        this.#changed.notify();
    }

    /** Takes keys until the stop, or until the queue is closed. */
    async #popLoop(): Promise<void> {
        const { concurrency = 1, batch = 1 } = this.#options;
        const free = () => concurrency - this.#jobs;
        const room = () => this.#breaker.room(performance.now());
        for (;;) {
            await this.#changed.until(() => (free() > 0 && room() > 0) || this.#stop.signal.aborted, this.#stop.signal);
            if (free() < concurrency / 2) {
                // Handlers often end together. Then one call can settle their keys and pop the next ones.
                await sleep(0);
            }
            if (this.#stop.signal.aborted) {
                return;
            }
            const max = Math.min(this.#isBatch ? batch : Math.min(batch, free()), room());
            if (max === 0) {
                // A pause has begun meanwhile.
                continue;
            }
            const popped = await this.#pop(max);
            if (popped === undefined) {
                return;
            }
            this.#start(popped.items);
        }
    }

    /** One pop, repeated with the same id until there is a reply. Undefined after the stop, and if the queue is closed. */
    async #pop(max: number): Promise<Popped<T> | undefined> {
        const { name, leaseDuration, wait, group, withKnown, withDiff } = this.#options;
        const sent = this.#outbox.splice(0, SETTLE_MAX);
        const options: PopOptions = { max, id: crypto.randomUUID(), settle: sent.map(({ settle }) => settle), retry: ONCE };
        Object.assign(options, { wait, worker: name, leaseDuration, group, withKnown, withDiff });
        const backoff = new Backoff(this.#pauses);
        const absent = absentBackoff();
        this.#isPopping = true;
        this.#changed.notify();
        try {
            for (;;) {
                try {
                    const popped = await this.#queue.pop({ ...options, signal: this.#stop.signal });
                    this.#warnOfParked(sent, popped.settled);
                    return popped;
                } catch (error) {
                    if (this.#stop.signal.aborted && !(error instanceof DeltaqError)) {
                        return await this.#takeBack(options, sent);
                    }
                    if (error instanceof DeltaqError && error.code === "queue-closed") {
                        this.#warnOfParked(sent, error.problem?.settled ?? []);
                        return undefined;
                    }
                    if (isAbsent(error)) {
                        // The queue was deleted, so its leases have ended.
                        options.settle = [];
                        if (absent.failures === 0) {
                            this.#reportAbsent(error);
                        }
                        await sleep(absent.after(error), this.#stop.signal).catch(() => undefined);
                    } else {
                        await this.#pause(error, "pop", backoff);
                    }
                    if (this.#stop.signal.aborted) {
                        return await this.#takeBack(options, sent);
                    }
                }
            }
        } finally {
            this.#isPopping = false;
        }
    }

    /** Repeats a pop that the stop has interrupted. Its reply may have been lost, and the keys in it should not have to wait until their leases expire. */
    async #takeBack(options: PopOptions, sent: readonly Sent[]): Promise<undefined> {
        const backoff = new Backoff(this.#pauses);
        for (;;) {
            try {
                const popped = await this.#queue.pop({ ...options, wait: "0s", signal: this.#end.signal });
                this.#warnOfParked(sent, popped.settled);
                this.#put(popped.items, Release());
                return undefined;
            } catch (error) {
                const hasNoKeys = error instanceof DeltaqError && (error.code === "queue-closed" || isAbsent(error));
                if (this.#end.signal.aborted || hasNoKeys) {
                    this.#warnOfParked(sent, (error instanceof DeltaqError && error.problem?.settled) || []);
                    return undefined;
                }
                await this.#pause(error, "pop", backoff);
            }
        }
    }

    /** Puts an outcome of keys into the outbox. */
    #put(items: readonly PoppedItem<T>[], outcome: Outcome): void {
        this.#outbox.push(...items.map(({ key, lease }) => ({ key, settle: { lease_id: lease.id, ...outcome } })));
    }

    /** Reports that the queue does not exist. Without a report, a worker with a mistyped name would wait in silence. */
    #reportAbsent(cause: unknown): void {
        const { onError } = this.#options;
        const error = new Error(`queue ${this.#queue.name} does not exist yet`, { cause });
        const { notices } = this.#queue;
        this.#call(() => (onError === undefined ? notices.warn(error.message) : onError(error)));
    }

    /** Reports an error and waits: as long as the server asks for, plus a random time, which a stop shortens. Throws the error if a retry can't solve it. */
    async #pause(error: unknown, call: string, backoff: Backoff): Promise<void> {
        if (!isTransient(error)) {
            throw error;
        }
        this.#report(error, call);
        const [asked, pause] = [askedMs(error), backoff.after(error)];
        const isStopping = this.#stop.signal.aborted;
        const random = Math.min(pause - asked, isStopping ? STOPPING_PAUSE_MS_MAX : Infinity);
        // If a signal was aborted, the callers notice it.
        await sleep(asked, this.#end.signal).catch(() => undefined);
        await sleep(random, isStopping ? this.#end.signal : this.#stop.signal).catch(() => undefined);
    }

    #start(popped: readonly PoppedItem<T>[]): void {
        // A pop that began before a pause may have brought keys for which there is no room.
        const room = this.#breaker.room(performance.now());
        const items = popped.slice(0, room);
        this.#put(popped.slice(items.length), Release());
        const deliveries = items.map(item => ({ item, context: this.#leases.add(item) }));
        const jobs = this.#isBatch ? [deliveries].filter(job => job.length > 0) : deliveries.map(delivery => [delivery]);
        for (const job of jobs) {
            this.#jobs += 1;
            for (const { item } of job) {
                this.#breaker.started(item.lease.id);
            }
            void this.#work(job).finally(() => {
                this.#jobs -= 1;
                this.#changed.notify();
            });
        }
    }

    /** Runs the handler, and puts its outcomes into the outbox. */
    async #work(job: readonly Delivery<T>[]): Promise<void> {
        const outcomes = await this.#outcomes(job);
        job.forEach(({ item }, index) => {
            const outcome = this.#leases.remove(item.lease.id) ? bounded(suited(outcomes[index] ?? Ack(), item)) : undefined;
            if (outcome !== undefined) {
                this.#put([item], outcome);
            }
            this.#attendBreaker(item, outcome ?? Release());
        });
    }

    /** Notes how the work on a key has ended, and reports the beginning and the end of a pause. */
    #attendBreaker(item: PoppedItem<T>, outcome: Outcome): void {
        const change = this.#breaker.ended(performance.now(), item.lease.id, item.key, outcome.as);
        if (change === undefined) {
            return;
        }
        const { pauseMs: ms, failures } = this.#breaker;
        if (change === "begins") {
            clearTimeout(this.#pauseEnd);
            this.#pauseEnd = setTimeout(() => this.#changed.notify(), ms);
        }
        if (change === "begins" && outcome.as === "release") {
            // The key that was tried has shown nothing, so nothing new is to be reported.
            return;
        }
        const { onPause } = this.#options;
        const { notices } = this.#queue;
        if (onPause !== undefined) {
            this.#call(() => onPause(change === "begins" ? { ms, failures } : undefined));
        } else if (change === "begins") {
            notices.warn(`the worker pauses for ${ms / 1_000} s, because keys of queue ${this.#queue.name} have failed in a row (${failures} failures)`);
        } else {
            notices.warn(`the worker goes on, because a key of queue ${this.#queue.name} has succeeded`);
        }
    }

    async #outcomes(job: readonly Delivery<T>[]): Promise<readonly Outcome[]> {
        try {
            return checked(await this.#handle(job), job);
        } catch (error) {
            for (const { item, context } of job) {
                if (!context.signal.aborted) {
                    this.#reportFailure(error, item);
                }
            }
            // A handler that ends because of the stop has not failed.
            return job.map(({ context }) => (context.signal.aborted ? Release() : thrown(error)));
        }
    }

    /** Settles while a pop waits, and at the end. Other outcomes go with the next pop. */
    async #settleLoop(): Promise<void> {
        for (;;) {
            await this.#changed.until(() => this.#isDrained || (this.#outbox.length > 0 && (this.#isPopping || this.#stop.signal.aborted || this.#breaker.pauseMs > 0)));
            const settle = this.#outbox.splice(0, SETTLE_MAX);
            if (settle.length > 0) {
                await this.#settle(settle);
            } else if (this.#isDrained) {
                return;
            }
        }
    }

    async #settle(sent: readonly Sent[]): Promise<void> {
        const settle = sent.map(each => each.settle);
        const backoff = new Backoff(this.#pauses);
        for (;;) {
            try {
                const { settled } = await this.#queue.settle(settle, { retry: ONCE, signal: this.#end.signal });
                this.#warnOfParked(sent, settled);
                return;
            } catch (error) {
                // The queue was deleted, so its leases have ended.
                if (this.#end.signal.aborted || isAbsent(error)) {
                    return;
                }
                await this.#pause(error, "settle", backoff);
            }
        }
    }
}

/** The handler, with an outcome for each key. */
function worked<T>(handler: BatchHandler<T>): Work {
    return async deliveries => {
        const result = (await outcomeOf(() => handler(deliveries as readonly Delivery<T>[]))) ?? Ack();
        return checked(isList(result) ? result : deliveries.map(() => result), deliveries);
    };
}

/** What a handler returns. An outcome that it throws means the same. */
async function outcomeOf<R>(handle: () => R): Promise<Awaited<R> | Outcome> {
    try {
        return await handle();
    } catch (error) {
        if (isOutcome(error)) {
            return error;
        }
        throw error;
    }
}

/** Throws if there is not one outcome for each key. */
function checked(outcomes: readonly Outcome[], deliveries: readonly Delivery<unknown>[]): readonly Outcome[] {
    if (!Array.isArray(outcomes) || outcomes.length !== deliveries.length) {
        throw new RangeError(`the handler has returned ${outcomes?.length} outcomes for ${deliveries.length} keys`);
    }
    outcomes.forEach(checkOutcome);
    return outcomes;
}

function isList(result: Outcome | readonly Outcome[]): result is readonly Outcome[] {
    return Array.isArray(result);
}

/** The stages of a stop, each a timer after the one before. */
class Grace {
    #timer: ReturnType<typeof setTimeout> | undefined;
    readonly #signal: AbortSignal;
    readonly #start: () => void;

    constructor(signal: AbortSignal, graceMs: number, stages: { over: () => void; abandon: () => void; end: () => void }) {
        const after = (ms: number, stage: () => void, next?: () => void) => () => {
            this.#timer = setTimeout(() => {
                stage();
                next?.();
            }, ms);
        };
        this.#signal = signal;
        this.#start = after(graceMs, stages.over, after(ABORTED_MS, stages.abandon, after(LAST_SETTLES_MS, stages.end)));
        signal.addEventListener("abort", this.#start, { once: true });
        if (signal.aborted) {
            this.#start();
        }
    }

    clear(): void {
        this.#signal.removeEventListener("abort", this.#start);
        clearTimeout(this.#timer);
    }
}
