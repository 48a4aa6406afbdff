/** Pauses between the attempts of a call. */

import { defined } from "./defaults.js";
import { type Duration, durationOf } from "./duration.js";
import { DeltaqError } from "./error.js";

/**
 * How often, and for how long, a failed call is repeated.
 *
 * The pause before the n-th repetition is random, between 0 and the smaller of `first * 2^(n - 1)` and `max` (full jitter). If the server asks for a
 * wait (`Retry-After`), that time is added. A call is not repeated if the next attempt would begin more than `total` after the first one.
 */
export interface RetryOptions {
    /** Maximum number of attempts, including the first; 1 turns off retries. Default: limited only by `total`. */
    attempts: number;
    /** Maximum of the random pause before the first repetition. Default 250ms. */
    first: Duration;
    /** Maximum of the random pause before any repetition. Default 10s. */
    max: Duration;
    /** The time after the first attempt in which attempts may begin. Default 2m. */
    total: Duration;
}

/** Some of the options. */
export type RetryChanges = { [Name in keyof RetryOptions]?: RetryOptions[Name] | undefined };

export const RETRY_DEFAULTS: RetryOptions = { attempts: Infinity, first: "250ms", max: "10s", total: "2m" };

/** `RetryOptions` in milliseconds. */
export interface Retry {
    readonly attempts: number;
    readonly firstMs: number;
    readonly maxMs: number;
    readonly totalMs: number;
    /** The limit of the repeats in words; empty without one. */
    readonly limit: string;
}

/** The options, of which later ones count before earlier ones. */
export function retryOf(...options: (RetryChanges | undefined)[]): Retry {
    const { attempts, first, max, total } = Object.assign({}, RETRY_DEFAULTS, ...options.map(each => defined(each ?? {}))) as RetryOptions;
    if (attempts !== Infinity && !(Number.isInteger(attempts) && attempts >= 1)) {
        throw new RangeError(`retry.attempts is ${String(attempts)}; it must be a whole number from 1`);
    }
    const limits = [...(attempts === Infinity ? [] : [`at most ${attempts} attempts`]), ...(total === FOR_EVER.total ? [] : [`for at most ${total}`])];
    return {
        attempts,
        firstMs: durationOf("retry.first", first),
        maxMs: durationOf("retry.max", max),
        totalMs: durationOf("retry.total", total),
        limit: limits.join(", "),
    };
}

/** Maximum of the random pause while a queue moves to another node, which takes seconds and is no overload. */
const MOVING_MS_MAX = 1_000;

/** A single attempt, for loops that have their own rules for repeating calls. */
export const ONCE: RetryChanges = { attempts: 1 };

/** Attempts without an end. */
export const FOR_EVER: RetryChanges = { attempts: Infinity, total: "36500d" };

/** The longest delay that `setTimeout` accepts. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Counts failures, and computes the pauses after them. */
export class Backoff {
    readonly #options: Pick<Retry, "firstMs" | "maxMs">;
    readonly #random: () => number;
    #failures = 0;

    constructor(options: Pick<Retry, "firstMs" | "maxMs">, random: () => number = Math.random) {
        this.#options = options;
        this.#random = random;
    }

    /** The failures since the last success. */
    get failures(): number {
        return this.#failures;
    }

    /** The pause after this failure, in milliseconds. */
    after(error: unknown): number {
        const { firstMs, maxMs } = this.#options;
        const isMoving = error instanceof DeltaqError && error.code === "not-owner";
        const limit = Math.min(maxMs, isMoving ? MOVING_MS_MAX : Infinity, firstMs * 2 ** this.#failures);
        this.#failures += 1;
        return askedMs(error) + this.#random() * limit;
    }

    /** Records a success: the next failure counts as the first one. */
    reset(): void {
        this.#failures = 0;
    }
}

/** The pauses of a worker whose queue does not exist: 1 s, doubling to 15 s. */
export function absentBackoff(): Backoff {
    return new Backoff({ firstMs: 1_000, maxMs: 15_000 }, () => 1);
}

/** The wait that the server requests, in milliseconds. */
export function askedMs(error: unknown): number {
    return error instanceof DeltaqError ? (error.retryAfterMs ?? 0) : 0;
}

/** Waits. Rejects with the reason of the signal as soon as it is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
        if (signal?.aborted) {
            reject(signal.reason);
            return;
        }
        const end = () => {
            clearTimeout(timer);
            reject(signal?.reason);
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener("abort", end);
            resolve();
        }, Math.min(Math.ceil(ms), TIMER_MS_MAX));
        signal?.addEventListener("abort", end, { once: true });
    });
}
