/** Sends calls to a server, with its token, timeouts and repetitions. This module does not depend on any operation of the API. */

import type { Defaults } from "./defaults.js";
import type { Problem } from "./documents.js";
import { checkDuration, type Duration, milliseconds } from "./duration.js";
import { CallAborted, causes, ConnectionError, DeltaqError, isOutcomeUnknown, isUnreachable, isUndoneHere, messageOf, problemError, retryAfter, unexpectedReply } from "./error.js";
import type { Parse } from "./json.js";
import { type Middleware, wrap } from "./middleware.js";
import { type Logger, Notices } from "./notices.js";
import { Backoff, type Retry, RETRY_DEFAULTS, retryOf, type RetryChanges, sleep } from "./retry.js";
import { Servers } from "./servers.js";

/** How often a call to one of several servers looks whether its server is silent. */
const LOOK_MS = 1_000;
/** How long a server may take to say that it is alive. */
const ALIVE_MS_MAX = 2_000;
/** What has the name of one of them as the end of a path. */
const NAMED = new Set(["sources", "indexes"]);

export interface ClientOptions {
    /** The token of the calls. */
    token?: string | undefined;
    /**
     * Instead of `token`: returns the token before each attempt, such as a function that reads a file. If the server refuses the token (401) and the
     * function then returns another one, the call is sent once more.
     */
    tokenSource?: (() => string | Promise<string>) | undefined;
    /** How calls are repeated, and the pauses of workers and informers after failures. */
    retry?: RetryChanges | undefined;
    /** The longest time of one attempt, not counting the `wait` of the call. Default 1m. */
    replyTimeout?: Duration | undefined;
    /** Sends requests instead of the runtime's `fetch`. */
    fetch?: typeof globalThis.fetch | undefined;
    /** Functions around each call with its repeats. The first is the outermost. Streams, such as a watch, have none. */
    middleware?: readonly Middleware<Invoke>[] | undefined;
    /**
     * Gets a warning when a call is repeated because no server answers, at most one a minute, and a note when a server answers again. Workers and informers
     * without `onError` warn here, too. Default: `console.warn` for both, because the output of a program may be data.
     */
    logger?: Logger | undefined;
}

/** A call as the middleware of a client sees it. */
export interface InvokedCall {
    /** The method of HTTP. */
    readonly method: string;
    /** The name of the queue; empty if the call concerns no queue. */
    readonly queue: string;
    /** The end of the path, such as `add`, `pop` or `settle`, without the name of a source or an index; empty for the queue itself. */
    readonly name: string;
    /** Headers of each attempt. A middleware may pass on a copy of the call with others. */
    readonly headers: Readonly<Record<string, string>>;
    /** @internal */
    readonly send: (headers: Readonly<Record<string, string>>) => Promise<unknown>;
}

/** Makes a call with its repeats. The result is the reply. */
export type Invoke = (call: InvokedCall) => Promise<unknown>;

/** Options that every call has. */
export interface CallOptions {
    /**
     * Aborts the call, which then rejects with the reason of the signal or, if an attempt has failed before, with a `CallAborted` that has both.
     */
    signal?: AbortSignal | undefined;
    /** How this call is repeated, instead of the options of the client. */
    retry?: RetryChanges | undefined;
    /** The longest time of one attempt, instead of that of the client. */
    replyTimeout?: Duration | undefined;
}

/** An option of calls that an informer makes. */
export interface Repeated {
    /** Gets each failure after which the call is repeated, instead of the logger. */
    onRepeat?: (error: DeltaqError) => void;
}

/** The defaults of `ClientOptions`. */
export const CLIENT_DEFAULTS: Defaults<ClientOptions> = {
    token: undefined,
    tokenSource: undefined,
    retry: RETRY_DEFAULTS,
    replyTimeout: "1m",
    fetch: undefined,
    middleware: undefined,
    logger: undefined,
};

type QueryValue = string | number | boolean | readonly string[] | undefined;

/** A call of the API. */
export interface Call {
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
    /** The segments of the path, not encoded. */
    path: readonly string[];
    /** Parameters, by their names in camel case. */
    query?: Readonly<Record<string, QueryValue>>;
    body?: string | Blob | (() => ReadableStream<Uint8Array>) | undefined;
    contentType?: string;
    accept?: string;
    /** Additional headers. */
    headers?: Readonly<Record<string, string | undefined>>;
    /** How long the server may wait before it replies, in milliseconds. */
    waitMs?: number;
    /** Whether the call is not idempotent. Such a call is repeated only if it was certainly not applied. */
    countsTwice?: boolean;
    /** Whether the result is the document and its ETag. */
    isTagged?: boolean;
}

export class Transport {
    /** What the client, its workers and its informers report. */
    readonly notices: Notices;
    readonly #servers: Servers;
    readonly #options: ClientOptions;
    readonly #fetch: typeof globalThis.fetch;
    readonly #invoke: Invoke | undefined;
    /** The questions to servers whether they are alive. */
    readonly #questions = new Map<string, Promise<boolean>>();

    constructor(url: string, options: ClientOptions) {
        if (options.token !== undefined && options.tokenSource !== undefined) {
            throw new TypeError("a client has only one of token and tokenSource");
        }
        if (typeof url !== "string") {
            throw new TypeError(`the URL of a client is ${String(url)}; it must be a text, such as "http://localhost:7070"`);
        }
        checkToken(options.token);
        if (options.tokenSource !== undefined && typeof options.tokenSource !== "function") {
            throw new TypeError(`tokenSource is ${typeof options.tokenSource}; it must be a function that returns the token`);
        }
        checkDuration("replyTimeout", options.replyTimeout);
        retryOf(options.retry);
        this.#servers = new Servers(url);
        this.notices = new Notices(this.#servers.names, options.logger);
        this.#options = options;
        const { middleware = [] } = options;
        this.#invoke = middleware.length === 0 ? undefined : wrap<Invoke>(call => call.send(call.headers), middleware);
        // A browser's fetch works only as a method of the window.
        this.#fetch = options.fetch ?? ((request, init) => globalThis.fetch(request, init));
    }

    get hasToken(): boolean {
        return (this.#options.token ?? this.#options.tokenSource) !== undefined;
    }

    /** How calls are repeated. */
    get retry(): Retry {
        return retryOf(this.#options.retry);
    }

    get hasSeveralServers(): boolean {
        return this.#servers.count > 1;
    }

    /** The URL of a call, at the server that gets it. */
    url({ path, query = {} }: Pick<Call, "path" | "query">, base = this.#servers.next(path)): string {
        // Runtimes and proxies remove these segments, so that the path would name something else.
        const lost = path.find(segment => segment.split("/").some(part => ["", ".", ".."].includes(part)));
        if (lost !== undefined) {
            throw new TypeError(`"${lost}" is no name: a path can't have it as a part`);
        }
        const search = new URLSearchParams();
        for (const [name, value] of Object.entries(query)) {
            if (value !== undefined) {
                search.set(parameter(name), String(value));
            }
        }
        const text = search.toString();
        return `${base}/${path.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
    }

    /** Sends a call, repeats it as the options say, and parses the reply. */
    async send(call: Call, options: CallOptions & Repeated = {}, parse: Parse = JSON.parse): Promise<unknown> {
        if (this.#invoke === undefined) {
            return this.#repeat(call, options, parse);
        }
        const headers = Object.fromEntries(Object.entries(call.headers ?? {}).filter((entry): entry is [string, string] => entry[1] !== undefined));
        const isOfQueue = call.path[1] === "queues" && call.path.length > 2;
        const [, , queue = "", ...rest] = isOfQueue ? call.path : ["", "", "", ...call.path];
        // A source or an index may have the name of a call.
        const end = NAMED.has(rest[0] ?? "") ? rest[0] : rest.at(-1);
        return this.#invoke({
            method: call.method,
            queue,
            name: end ?? "",
            headers,
            send: headers => this.#repeat({ ...call, headers }, options, parse),
        });
    }

    async #repeat(call: Call, options: CallOptions & Repeated, parse: Parse): Promise<unknown> {
        const retry = retryOf(this.#options.retry, options.retry);
        const backoff = new Backoff(retry);
        const begin = performance.now();
        for (;;) {
            try {
                return await this.#attempt(call, options, parse);
            } catch (error) {
                if (!(error instanceof DeltaqError) || !error.retryable || backoff.failures + 1 >= retry.attempts) {
                    throw error;
                }
                if (call.countsTwice && isOutcomeUnknown(error)) {
                    throw error;
                }
                const pause = backoff.after(error);
                if (performance.now() - begin + pause > retry.totalMs) {
                    throw error;
                }
                if (options.onRepeat === undefined) {
                    this.notices.repeated(error, wordsOf(call), retry.limit);
                } else {
                    options.onRepeat(error);
                }
                await sleep(pause, options.signal).catch(reason => {
                    throw new CallAborted(reason, error);
                });
            }
        }
    }

    /** Sends a call once, and returns the body of its reply as a stream. `signal` also ends the stream. */
    async stream(call: Call, signal?: AbortSignal): Promise<ReadableStream<Uint8Array>> {
        return this.#within(call, { signal }, async (response, timer) => {
            clearTimeout(timer);
            if (response.body === null) {
                throw unexpectedReply(nameOf(call), response.status, "the reply has no body");
            }
            return response.body;
        });
    }

    async #attempt(call: Call, options: CallOptions, parse: Parse): Promise<unknown> {
        return this.#within(call, options, async response => {
            const text = await response.text();
            if (text === "") {
                return undefined;
            }
            try {
                const document = parse(text);
                if (typeof document !== "object" || document === null || Array.isArray(document)) {
                    throw new SyntaxError("it is no object");
                }
                return call.isTagged ? { document, etag: response.headers.get("etag") ?? "" } : document;
            } catch (error) {
                throw unexpectedReply(nameOf(call), response.status, `the reply is not that of a deltaq server: ${messageOf(error)}`);
            }
        });
    }

    /** Sends the request and reads its reply. If a server does nothing, and there is another one, the request goes there at once. */
    async #within<R>(call: Call, options: CallOptions, read: Read<R>): Promise<R> {
        for (let others = this.#servers.count - 1; ; others -= 1) {
            const base = this.#servers.next(call.path);
            try {
                if (others > 0 && this.#servers.isSilent(base) && !(await this.#isAlive(base))) {
                    this.#servers.leave(base, call.path);
                    continue;
                }
                return await this.#sendTo(base, call, options, read);
            } catch (error) {
                if (!(error instanceof DeltaqError) || !isUndoneHere(error)) {
                    throw error;
                }
                this.#servers.leave(base, call.path);
                if (others === 0) {
                    throw error;
                }
            }
        }
    }

    /** Sends the request to a server and reads its reply within the timeout. */
    async #sendTo<R>(base: string, call: Call, options: CallOptions, read: Read<R>): Promise<R> {
        const { signal } = options;
        // If this line throws, the caller has made a mistake: for example, the token contains a character that is not allowed in a header.
        const token = await this.#token();
        const request = this.#request(call, token, base);
        signal?.throwIfAborted();
        const attempt = new AbortController();
        const abort = () => attempt.abort(signal?.reason);
        signal?.addEventListener("abort", abort, { once: true });
        const timeout = options.replyTimeout ?? this.#options.replyTimeout ?? (CLIENT_DEFAULTS.replyTimeout as Duration);
        const timeoutMs = milliseconds(timeout) + (call.waitMs ?? 0);
        const timer = setTimeout(() => attempt.abort(new ConnectionError(`${nameOf(call)}: no reply within ${timeoutMs} ms`)), timeoutMs);
        const look = this.#servers.count === 1 ? undefined : setInterval(() => void this.#look(base, attempt, call), LOOK_MS);
        const end = () => clearInterval(look);
        let isStream = false;
        try {
            let response = await this.#fetch(request, { signal: attempt.signal });
            if (response.status === 401) {
                const replaced = await this.#token();
                if (replaced !== token) {
                    await response.body?.cancel();
                    response = await this.#fetch(this.#request(call, replaced, base), { signal: attempt.signal });
                }
            }
            this.#servers.answered(base, call.path, response.status, response.headers.get("deltaq-owner"));
            await refuse(call, response);
            const result = await read(response, timer);
            this.notices.answered();
            isStream = result instanceof ReadableStream;
            if (isStream) {
                signal?.addEventListener("abort", end, { once: true });
            }
            return result;
        } catch (error) {
            if (signal?.aborted) {
                throw signal.reason;
            }
            if (error instanceof DeltaqError) {
                if (!isUnreachable(error)) {
                    this.notices.answered();
                }
                throw error;
            }
            this.#servers.leave(base, call.path);
            if (attempt.signal.aborted) {
                throw attempt.signal.reason;
            }
            throw new ConnectionError(`${nameOf(call)}: ${causes(error)}`, { cause: error });
        } finally {
            clearTimeout(timer);
            // A stream outlives this method, and the signal of the caller must still end it.
            if (!isStream) {
                signal?.removeEventListener("abort", abort);
            }
            if (!isStream || signal?.aborted) {
                end();
            }
        }
    }

    /** Ends the attempt if its server is silent and does not say that it is alive. */
    async #look(base: string, attempt: AbortController, call: Call): Promise<void> {
        if (!attempt.signal.aborted && this.#servers.isSilent(base) && !(await this.#isAlive(base))) {
            this.#servers.leave(base, call.path);
            attempt.abort(new ConnectionError(`${nameOf(call)}: nothing comes from ${base}`));
        }
    }

    /** Whether a server answers in time. The question needs no token, and any answer counts. */
    #isAlive(base: string): Promise<boolean> {
        const question = this.#questions.get(base) ?? this.#ask(base).finally(() => this.#questions.delete(base));
        this.#questions.set(base, question);
        return question;
    }

    async #ask(base: string): Promise<boolean> {
        try {
            const answer = await this.#fetch(new Request(`${base}/livez`, { redirect: "manual" }), { signal: AbortSignal.timeout(ALIVE_MS_MAX) });
            await answer.body?.cancel();
            this.#servers.heard(base);
            return true;
        } catch {
            return false;
        }
    }

    async #token(): Promise<string | undefined> {
        const { token, tokenSource } = this.#options;
        return tokenSource === undefined ? token : checkToken(await tokenSource());
    }

    #request(call: Call, token: string | undefined, base: string): Request {
        const headers = new Headers({ accept: call.accept ?? "application/json" });
        if (token !== undefined) {
            headers.set("authorization", `Bearer ${token}`);
        }
        if (call.body !== undefined) {
            headers.set("content-type", call.contentType ?? "application/json");
        }
        for (const [name, value] of Object.entries(call.headers ?? {})) {
            if (value !== undefined) {
                headers.set(name, value);
            }
        }
        const init: RequestInit & { duplex?: "half" } = { method: call.method, headers, redirect: "manual" };
        if (typeof call.body === "function") {
            init.body = call.body();
            init.duplex = "half";
        } else if (call.body !== undefined) {
            init.body = call.body;
        }
        return new Request(this.url(call, base), init);
    }
}

/** Reads a reply. The timer ends the attempt. */
type Read<R> = (response: Response, timer: ReturnType<typeof setTimeout>) => Promise<R>;

/** The name of a parameter of the API. */
function parameter(name: string): string {
    return name.replace(/[A-Z]/g, letter => `_${letter.toLowerCase()}`);
}

/** The token. Throws if it can't be one. */
function checkToken(token: string | undefined): string | undefined {
    if (token !== undefined && typeof token !== "string") {
        throw new TypeError(`the token is ${token === null ? "null" : typeof token}; it must be a text`);
    }
    if (/^\s*bearer\s/i.test(token ?? "")) {
        throw new TypeError('the token begins with "Bearer"; give it without "Bearer", which the client adds');
    }
    return token;
}

/** The call in words. */
function wordsOf({ method, path }: Call): string {
    const [, , queue, ...rest] = path;
    const isOfQueue = path[1] === "queues" && queue !== undefined;
    if (isOfQueue && rest.length > 0) {
        return `the ${rest.join(" ")} of the queue "${queue}"`;
    }
    return isOfQueue ? `the ${method} of the queue "${queue}"` : `the call ${method} /${path.join("/")}`;
}

/** The call in the messages of errors. */
function nameOf(call: Call): string {
    return `${call.method} /${call.path.join("/")}`;
}

/** Throws if the reply is not a success. */
async function refuse(call: Call, response: Response): Promise<void> {
    if (response.ok) {
        return;
    }
    const after = retryAfter(response.headers.get("retry-after"), Date.now());
    const text = await response.text();
    if (response.headers.get("content-type")?.startsWith("application/problem+json")) {
        const problem = JSON.parse(text) as Problem;
        throw problemError(problem, nameOf(call), problem.retry_after_ms ?? after);
    }
    const location = response.headers.get("location");
    const what = location === null ? "the reply is not that of a deltaq server" : `a redirection to ${location}; use that URL`;
    throw unexpectedReply(nameOf(call), response.status, what, after);
}
