/** The ways in which a handler ends the work on a key. */

import type { Ended, Hold, PoppedItem } from "./documents.js";
import type { Holding } from "./options.js";
import { type Duration, milliseconds } from "./duration.js";
import { messageOf } from "./error.js";

/** How a lease is settled. `Ack`, `Done`, `Nack`, `Reject` and `Release` create outcomes. */
export interface Outcome {
    readonly as: Ended["as"];
    readonly delay?: Duration | undefined;
    readonly floor?: boolean | undefined;
    readonly error?: string | undefined;
    readonly hold?: Hold | undefined;
}

/**
 * Done: the deltas become the known object of the key. A handler that returns nothing means the same. With `hold`, nothing of the queue, or with the
 * `holdScope` "group" of the group of the key, is delivered for that time, at most an hour, because the target asks for it.
 */
export function Ack(options: Holding = {}): Outcome {
    return ended("ack", options);
}

/** Mode keys: done, and the failure count of the key is kept. With `delay` the key is added again after that time. In other modes, it is a failure. */
export function Done(options: { delay?: Duration | undefined } = {}): Outcome {
    return { as: "done", ...options };
}

/**
 * Failed: the key is delivered again after `delay` or, without it, after its backoff. With `floor`, a change does not shorten this wait. An exception of a
 * handler counts as a Nack.
 */
export function Nack(options: { delay?: Duration | undefined; floor?: boolean | undefined; error?: string | undefined } = {}): Outcome {
    return { as: "nack", ...options };
}

/** Failed for good: the key is parked, unless a newer change waits. */
export function Reject(options: { error?: string | undefined } = {}): Outcome {
    return { as: "reject", ...options };
}

/**
 * Not worked on: the key returns to the ready queue at once, without a failure. With `hold`, nothing of the queue, or of the
 * `holdScope` "group" or "key", is delivered for that time, at most an hour, because the target asks for it.
 */
export function Release(options: Holding = {}): Outcome {
    return ended("release", options);
}

function ended(as: "ack" | "release", holding: Holding): Outcome {
    const hold = holdOf(holding);
    return hold === undefined ? { as } : { as, hold };
}

/** The hold of a call; without a scope it is that of the queue. */
export function holdOf({ hold: length, holdScope: scope = "queue" }: Holding): Hold | undefined {
    return length === undefined ? undefined : { scope, for: length };
}

/** The ways to settle that a handler may return. */
const SETTLE_AS = new Set(["ack", "done", "nack", "reject", "release"]);
/** The longest delay of a key, in milliseconds. */
const DELAY_MS_MAX = 366 * 86_400_000;
/** Maximum size of the error of a failure, in bytes, which is that of the server. Only the end of a longer text is sent, because the end says more. */
export const ERROR_BYTES_MAX = 4_096;

/** Whether the value is an outcome: what a handler may return, and also throw. */
export function isOutcome(value: unknown): value is Outcome {
    return typeof value === "object" && value !== null && !(value instanceof Error) && SETTLE_AS.has((value as { as?: unknown }).as as string);
}

/** The outcome of a handler that has thrown this error. */
export function thrown(error: unknown): Outcome {
    return Nack({ error: messageOf(error) });
}

/**
 * The outcome for an item. `Done` outside mode keys is a failure: the server would refuse the settles of other keys in the same call, too. Items of mode
 * keys have no deltas.
 */
export function suited(outcome: Outcome, item: PoppedItem<unknown>): Outcome {
    const isElsewhere = outcome.as === "done" && item.deltas.length > 0;
    return isElsewhere ? Nack({ error: "Done is only for queues of mode keys, and this queue has another mode" }) : outcome;
}

/** The outcome with an error that the server accepts: a text of limited length, without lone surrogates. */
export function bounded(outcome: Outcome): Outcome {
    if (outcome.error === undefined) {
        return outcome;
    }
    // In a program without types, `error` may be an `Error`.
    const bytes = new TextEncoder().encode(messageOf(outcome.error));
    let start = Math.max(0, bytes.length - ERROR_BYTES_MAX);
    // The cut may be in a character, whose other bytes begin with the bits 10.
    while (((bytes[start] ?? 0) & 0xc0) === 0x80) {
        start += 1;
    }
    // Encoding has replaced lone surrogates.
    return { ...outcome, error: new TextDecoder().decode(bytes.subarray(start)) };
}

/** Throws if the value is not an outcome, or if the server would refuse its delay. */
export function checkOutcome(outcome: Outcome | undefined): void {
    if (!SETTLE_AS.has(outcome?.as as string)) {
        throw new TypeError("the handler has returned something else than Ack(), Done(), Nack(), Reject() or Release()");
    }
    const { delay } = outcome as Outcome;
    if (delay !== undefined && milliseconds(delay) > DELAY_MS_MAX) {
        throw new RangeError(`a delay may have 366 days, and this one is ${delay}`);
    }
}
