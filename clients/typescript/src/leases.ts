/** The leases of a worker: extends them while handlers run, and detects lost leases. */

import type { Extended, PoppedItem } from "./documents.js";
import type { Duration } from "./duration.js";
import type { Queue } from "./queue.js";
import { askedMs, Backoff, ONCE, type Retry } from "./retry.js";

/** One call extends all leases whose next extension is due within this fraction of their length. */
const TOGETHER = 1 / 20;
/** Maximum number of leases in one extend. */
const EXTEND_MAX = 10_000;
/** Timeout of an extend, in milliseconds. */
const EXTEND_TIMEOUT_MS_MAX = 30_000;
/** Maximum safety margin, in milliseconds: a lease that could not be extended counts as lost this long before its end. */
const MARGIN_MS_MAX = 5_000;

/** The reason of the signal of a handler whose lease is lost. */
export class LeaseLost extends Error {
    override readonly name = "LeaseLost";
}

/** What a handler knows about its lease. */
export class Context {
    /** The fencing token. It grows with every lease of the queue, so a store that remembers the highest one can refuse a late worker. */
    readonly token: number;
    readonly leaseId: string;
    /** The name of the queue. */
    readonly queue: string;
    /** Deltas that have arrived since the key was leased, as of the last extension. */
    pendingDeltas = 0;
    /** Whether the newest delta of the key was a deletion at the last extension. */
    deleted = false;
    readonly #lost = new AbortController();
    #deadline: number;

    /** `deadline` is on the clock of `performance.now()`. */
    constructor(item: PoppedItem<unknown>, deadline: number, queue: string) {
        this.token = item.lease.token;
        this.leaseId = item.lease.id;
        this.queue = queue;
        this.#deadline = deadline;
    }

    /**
     * Aborted when the lease is lost, or when the worker stops and its grace period is over: the handler should then end without further effects.
     * After a loss the result of the handler is not used.
     */
    get signal(): AbortSignal {
        return this.#lost.signal;
    }

    /** The milliseconds until the lease counts as lost, unless it is extended. */
    get remainingMs(): number {
        return Math.max(0, this.#deadline - performance.now());
    }

    /** Sets the deadline after an extension. For the worker. */
    extended(deadline: number, { pending_deltas, deleted }: Extended): void {
        this.#deadline = deadline;
        this.pendingDeltas = pending_deltas ?? 0;
        this.deleted = deleted ?? false;
    }

    /** Aborts the handler. For the worker. */
    abort(reason: Error): void {
        this.#lost.abort(reason);
    }
}

/** A lease with a running handler. */
interface Held {
    readonly context: Context;
    lengthMs: number;
    /** When the lease counts as lost: some time before the server may give the key to another worker. */
    deadline: number;
    extendAt: number;
    /** The lease is not extended before this time, because the server has requested a wait. */
    notBefore: number;
    readonly backoff: Backoff;
}

export class Leases {
    readonly #queue: Queue<unknown>;
    readonly #duration: Duration | undefined;
    readonly #pauses: Pick<Retry, "firstMs" | "maxMs">;
    readonly #onError: (error: unknown) => void;
    readonly #held = new Map<string, Held>();
    #timer: ReturnType<typeof setTimeout> | undefined;
    /** When the timer fires. */
    #wakeAt = Infinity;
    #isExtending = false;

    constructor(
        queue: Queue<unknown>,
        duration: Duration | undefined,
        pauses: Pick<Retry, "firstMs" | "maxMs">,
        onError: (error: unknown) => void,
    ) {
        this.#queue = queue;
        this.#duration = duration;
        this.#pauses = pauses;
        this.#onError = onError;
    }

    /** Adds a lease that has just been delivered. */
    add(item: PoppedItem<unknown>): Context {
        const lengthMs = item.lease.expires_in_ms;
        const now = performance.now();
        const deadline = now + lengthMs - marginMs(lengthMs);
        const context = new Context(item, deadline, this.#queue.name);
        const backoff = new Backoff(this.#pauses);
        this.#held.set(item.lease.id, { context, lengthMs, deadline, extendAt: now + lengthMs / 3, notBefore: 0, backoff });
        this.#schedule(now + lengthMs / 3);
        return context;
    }

    /** Stops extending a lease. False if the lease was already lost. */
    remove(leaseId: string): boolean {
        return this.#held.delete(leaseId);
    }

    /** Aborts the handlers that still run. */
    abort(reason: Error): void {
        for (const { context } of this.#held.values()) {
            context.abort(reason);
        }
    }

    /** Stops extending leases. */
    stop(): void {
        this.#held.clear();
        clearTimeout(this.#timer);
    }

    #schedule(at: number): void {
        if (at < this.#wakeAt) {
            clearTimeout(this.#timer);
            this.#wakeAt = at;
            this.#timer = setTimeout(() => this.#wake(), Math.max(0, Math.ceil(at - performance.now())));
        }
    }

    #wake(): void {
        this.#wakeAt = Infinity;
        const now = performance.now();
        const due = new Map<string, Held>();
        for (const [id, held] of this.#held) {
            if (held.deadline <= now) {
                this.#lose(id, held, "its time has passed without an extension");
            } else if (held.extendAt <= now + held.lengthMs * TOGETHER && held.notBefore <= now && due.size < EXTEND_MAX) {
                due.set(id, held);
            }
        }
        if (due.size > 0 && !this.#isExtending) {
            this.#isExtending = true;
            void this.#extend(due).finally(() => {
                this.#isExtending = false;
                this.#scheduleNext();
            });
        }
        this.#scheduleNext();
    }

    #scheduleNext(): void {
        let next = Infinity;
        for (const { extendAt, deadline } of this.#held.values()) {
            next = Math.min(next, deadline, this.#isExtending ? deadline : extendAt);
        }
        if (next < Infinity) {
            this.#schedule(next);
        }
    }

    async #extend(due: Map<string, Held>): Promise<void> {
        const begin = performance.now();
        // An attempt without a reply must leave time for another one.
        let timeoutMs = EXTEND_TIMEOUT_MS_MAX;
        for (const { deadline } of this.#held.values()) {
            timeoutMs = Math.min(timeoutMs, (deadline - begin) / 2);
        }
        try {
            const options = { leaseDuration: this.#duration, replyTimeout: `${Math.max(timeoutMs, 0).toFixed(3)}ms`, retry: ONCE };
            const { settled } = await this.#queue.extend([...due.keys()], options);
            for (const extended of settled) {
                const held = due.get(extended.lease_id);
                if (held === undefined) {
                    continue;
                }
                if (extended.result === "ok" && extended.expires_in_ms !== null) {
                    held.backoff.reset();
                    held.lengthMs = extended.expires_in_ms;
                    held.deadline = begin + held.lengthMs - marginMs(held.lengthMs);
                    held.extendAt = begin + held.lengthMs / 3;
                    held.context.extended(held.deadline, extended);
                } else {
                    this.#lose(extended.lease_id, held, `it has ended: ${extended.outcome ?? extended.result}`);
                }
            }
        } catch (error) {
            this.#onError(error);
            const now = performance.now();
            const asked = askedMs(error);
            for (const held of due.values()) {
                // The next attempt is early enough to keep the lease, unless the server asks for a longer wait.
                const pause = held.backoff.after(error) - asked;
                held.notBefore = now + asked;
                held.extendAt = held.notBefore + Math.min(pause, Math.max(0, held.deadline - now) / 3);
            }
        }
    }

    #lose(id: string, held: Held, why: string): void {
        if (this.#held.delete(id)) {
            held.context.abort(new LeaseLost(`the lease ${id} is lost: ${why}`));
        }
    }
}

/** How long before its end a lease of this length counts as lost, in milliseconds. */
function marginMs(lengthMs: number): number {
    return Math.min(MARGIN_MS_MAX, lengthMs / 6);
}
