/** Errors of calls. */

import type { Problem } from "./documents.js";

/** The statuses of retryable replies without a problem document. Such a reply comes from a proxy. */
const RETRYABLE_STATUSES = new Set([408, 429, 502, 503, 504]);

/** Codes with a status of 500 or more that guarantee that nothing was applied. */
const KNOWN_OUTCOMES = new Set(["draining", "recovering", "too-many-connections", "journal-behind", "index-building"]);

/** The problems of a server that refuses every call for a reason of its own. */
const UNDONE_HERE = new Set(["draining", "host-not-allowed", "too-many-connections", "unauthorized"]);

/** Codes of Node's errors after which nothing was sent, because there was no connection. Browsers do not report why a call has failed. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN"]);

/** A call that was refused or failed. */
export class DeltaqError extends Error {
    /** The error code for programs: the `code` of the problem document, or `unexpected-reply` if the reply has none. */
    readonly code: string;
    /** The HTTP status; 0 if there was no reply. */
    readonly status: number;
    /** Whether the same call may succeed later. */
    readonly retryable: boolean;
    /** The wait that the server requests before the call is repeated, in milliseconds. */
    readonly retryAfterMs: number | undefined;
    /** The problem document, if the reply has one. */
    readonly problem: Problem | undefined;

    constructor(message: string, fields: ErrorFields, options?: ErrorOptions) {
        super(message, options);
        this.name = "DeltaqError";
        this.code = fields.code;
        this.status = fields.status;
        this.retryable = fields.retryable;
        this.retryAfterMs = fields.retryAfterMs;
        this.problem = fields.problem;
    }

    /** A suggestion of the server, if it has one. */
    get hint(): string | undefined {
        return this.problem?.hint;
    }
}

/**
 * There was no complete reply: the connection was refused or lost, or the timeout of the client has passed. The outcome of the call is unknown, except
 * in Node if there was no connection.
 */
export class ConnectionError extends DeltaqError {
    constructor(message: string, options?: ErrorOptions) {
        super(message, { code: "no-reply", status: 0, retryable: true }, options);
        this.name = "ConnectionError";
    }
}

/** A call that was aborted after an attempt had failed. `cause` is that failure. */
export class CallAborted extends Error {
    /** The reason of the signal. */
    readonly reason: unknown;

    constructor(reason: unknown, failure: DeltaqError) {
        super(`${messageOf(reason)}; before that: ${failure.message}`, { cause: failure });
        this.name = "AbortError";
        this.reason = reason;
    }
}

interface ErrorFields {
    code: string;
    status: number;
    retryable: boolean;
    retryAfterMs?: number | undefined;
    problem?: Problem | undefined;
}

/** The error for a problem document: of a reply, or of the last row of a watch. */
export function problemError(problem: Problem, call: string, retryAfterMs = problem.retry_after_ms): DeltaqError {
    const { code, status, retryable, detail, hint } = problem;
    return new DeltaqError(`${call}: ${detail}${hint === undefined ? "" : `; ${hint}`} (${code})`, { code, status, retryable, retryAfterMs, problem });
}

/** The error for a reply that does not come from this API. */
export function unexpectedReply(call: string, status: number, what: string, retryAfterMs?: number): DeltaqError {
    const retryable = RETRYABLE_STATUSES.has(status);
    return new DeltaqError(`${call}: status ${status}: ${what}`, { code: "unexpected-reply", status, retryable, retryAfterMs });
}

/** Whether an endless loop, such as that of a worker, repeats the call after a pause: the server or a proxy may be down, overloaded or defective. */
export function isTransient(error: unknown): error is DeltaqError {
    return error instanceof DeltaqError && (error.retryable || error.status >= 500 || isDefect(error));
}

/** Whether no deltaq server has answered: there was no reply, or only that of a proxy. */
export function isUnreachable(error: unknown): error is DeltaqError {
    return error instanceof DeltaqError && (error.status === 0 || error.code === "unexpected-reply");
}

/** Node's codes in words. */
const REASONS: Readonly<Record<string, string>> = {
    ECONNREFUSED: "connection refused",
    ECONNRESET: "connection reset",
    ENOTFOUND: "unknown host name",
    EAI_AGAIN: "unknown host name",
    UND_ERR_SOCKET: "connection closed",
};

/** Why no server has answered, in a few words. */
export function reasonOf(error: DeltaqError): string {
    let reason = messageOf(error);
    for (let at: unknown = innerOf(error), depth = 0; at !== undefined && at !== null && depth < 5; at = innerOf(at), depth += 1) {
        reason = REASONS[(at as { code?: string }).code ?? ""] ?? messageOf(at);
    }
    return reason;
}

/** What has caused an error: for the connections to all addresses of a host, the first of their errors. */
function innerOf(error: unknown): unknown {
    return error instanceof AggregateError ? error.errors[0] : (error as { cause?: unknown }).cause;
}

/** Whether the queue does not exist. Its producer may create it later. */
export function isAbsent(error: unknown): boolean {
    return error instanceof DeltaqError && error.code === "queue-not-found";
}

/** Whether the status is a success, but the reply does not come from this API. */
function isDefect({ code, status }: DeltaqError): boolean {
    return code === "unexpected-reply" && status >= 200 && status < 300;
}

/** Whether the call may have been applied. */
export function isOutcomeUnknown({ status, code, cause }: DeltaqError): boolean {
    return status === 0 ? !wasNotSent(cause) : status >= 500 && !KNOWN_OUTCOMES.has(code);
}

/** Whether the call was not applied, for a reason that another server need not have. */
export function isUndoneHere({ status, code, retryable, cause }: DeltaqError): boolean {
    // Every other reply without a problem document comes from another server.
    const isOther = code === "unexpected-reply" && status >= 300 && status < 500 && !retryable;
    return status === 0 ? wasNotSent(cause) : isOther || UNDONE_HERE.has(code);
}

/** Whether an error of `fetch` means that there was no connection. It has one error for each address of the host. */
function wasNotSent(error: unknown): boolean {
    if (error instanceof AggregateError) {
        return error.errors.length > 0 && error.errors.every(wasNotSent);
    }
    return error instanceof Error && (NOT_SENT.has((error as { code?: string }).code ?? "") || wasNotSent(error.cause));
}

/** The milliseconds of a `Retry-After` header, which has seconds or a date. */
export function retryAfter(header: string | null, nowMs: number): number | undefined {
    if (header === null) {
        return undefined;
    }
    const ms = /^\d+$/.test(header) ? Number(header) * 1000 : Date.parse(header) - nowMs;
    return Number.isNaN(ms) ? undefined : Math.max(0, ms);
}

/** The message of any thrown value, even of an object that cannot be converted to text. */
export function messageOf(thrown: unknown): string {
    try {
        return String(thrown instanceof Error ? thrown.message || thrown.name : thrown);
    } catch {
        return "an error without a text";
    }
}

/** The message of an error and of its causes. In Node the message is only "fetch failed", and the cause has the reason. */
export function causes(error: unknown): string {
    const messages: string[] = [];
    for (let at = error; at !== undefined && at !== null && messages.length < 5; at = innerOf(at)) {
        messages.push(messageOf(at));
    }
    return messages.join(": ");
}
