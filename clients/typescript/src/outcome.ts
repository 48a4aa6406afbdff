/** The ways in which a handler ends the work on a key. */

import type { SettleAs } from "./documents.js";
import type { Duration } from "./duration.js";
import { messageOf } from "./error.js";

/** How a lease is settled. Made by `Ack`, `Done`, `Nack`, `Reject` and `Release`. */
export interface Outcome {
    readonly as: SettleAs;
    readonly delay?: Duration;
    readonly error?: string;
}

/** Done: the deltas become the known object of the key. A handler that returns nothing means the same. */
export function Ack(): Outcome {
    return { as: "ack" };
}

/** Mode keys: done, and the failures of the key stay. With `delay` the key is added again after that time. */
export function Done(options: { delay?: Duration } = {}): Outcome {
    return { as: "done", ...options };
}

/** Failed: the key is delivered again after its backoff, or after `delay`. A handler that throws means the same. */
export function Nack(options: { delay?: Duration; error?: string } = {}): Outcome {
    return { as: "nack", ...options };
}

/** Failed for good: the key is parked. */
export function Reject(options: { error?: string } = {}): Outcome {
    return { as: "reject", ...options };
}

/** Not worked on: the key returns to the ready queue at once, without a failure. */
export function Release(): Outcome {
    return { as: "release" };
}

/** The most bytes that the server takes as the error of a failure. */
const ERROR_BYTES_MAX = 4_096;

/** The failure of a handler that has thrown. */
export function thrown(error: unknown): Outcome {
    return Nack({ error: messageOf(error) });
}

/** The outcome with its error cut to what the server takes. */
export function bounded(outcome: Outcome): Outcome {
    const { error } = outcome;
    // A UTF-16 unit takes at most three bytes.
    if (error === undefined || error.length * 3 <= ERROR_BYTES_MAX) {
        return outcome;
    }
    const bytes = new TextEncoder().encode(error);
    if (bytes.length <= ERROR_BYTES_MAX) {
        return outcome;
    }
    // The last character may be cut in two, which decoding replaces by a longer one.
    const text = new TextDecoder().decode(bytes.subarray(0, ERROR_BYTES_MAX - 4)).replace(/\uFFFD+$/, "");
    return { ...outcome, error: text };
}
