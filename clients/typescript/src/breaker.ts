/**
 * Pauses a worker whose keys fail. It has no clock and no timer.
 *
 * When different keys fail in a row, the target of the handlers is probably down, and the keys are fine. The worker then takes no keys for a time, and
 * tries one key after that. A nack is a failure; ack, done and reject are successes; a release is neither. Failures of one key count once.
 */

import type { Ended } from "./documents.js";

/** The pauses, in milliseconds: they double with each key that fails after a pause. */
const PAUSE_MS_FIRST = 1_000;
const PAUSE_MS_MAX = 60_000;
/** The largest number of failures in a row: their keys are remembered. */
export const BREAKER_MAX = 1_000;

export class Breaker {
    readonly #limit: number | undefined;
    /** The keys that have failed since the last success. There are fewer than the limit, and none during a pause. */
    readonly #keys = new Set<string>();
    #failures = 0;
    #pauseMs = 0;
    /** When one key may be tried; infinite while its handler runs. */
    #until = 0;
    /** The lease of the key that is tried. */
    #probe: string | undefined;

    /** Without a limit, nothing pauses the worker. */
    constructor(limit: number | undefined) {
        this.#limit = limit;
    }

    /** The failures since the last success. */
    get failures(): number {
        return this.#failures;
    }

    /** The present pause; 0 while the worker is not paused. */
    get pauseMs(): number {
        return this.#pauseMs;
    }

    /** How many handlers may begin. */
    room(now: number): number {
        return this.#pauseMs === 0 ? Infinity : Number(now >= this.#until);
    }

    /** A handler has begun, for which there was room. */
    started(leaseId: string): void {
        if (this.#pauseMs > 0) {
            this.#probe = leaseId;
            this.#until = Infinity;
        }
    }

    /** A handler has ended; a lost lease counts as a release. The result says whether a pause begins, again or for the first time, or ends. */
    ended(now: number, leaseId: string, key: string, as: Ended["as"]): "begins" | "ends" | undefined {
        const isProbe = this.#pauseMs > 0;
        // The handlers that began before the pause don't end it.
        if (this.#limit === undefined || (isProbe && leaseId !== this.#probe)) {
            return undefined;
        }
        if (as === "release") {
            if (!isProbe) {
                return undefined;
            }
            this.#pauseFor(now, this.#pauseMs);
            return "begins";
        }
        if (as !== "nack") {
            this.#keys.clear();
            this.#failures = this.#pauseMs = 0;
            this.#probe = undefined;
            return isProbe ? "ends" : undefined;
        }
        this.#failures += 1;
        this.#keys.add(key);
        if (!isProbe && this.#keys.size < this.#limit) {
            return undefined;
        }
        this.#pauseFor(now, Math.min(Math.max(2 * this.#pauseMs, PAUSE_MS_FIRST), PAUSE_MS_MAX));
        return "begins";
    }

    #pauseFor(now: number, pauseMs: number): void {
        this.#keys.clear();
        this.#pauseMs = pauseMs;
        this.#until = now + pauseMs;
        this.#probe = undefined;
    }
}
