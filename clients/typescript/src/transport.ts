/** Sends calls to a server, with its token, timeouts and repetitions. This module does not depend on any operation of the API. */

import type { Problem } from "./documents.js";
import { causes, ConnectionError, DeltaqError, isOutcomeUnknown, messageOf, problemError, retryAfter, unexpectedReply } from "./error.js";
import type { Parse } from "./json.js";
import { Backoff, DEFAULT_RETRY, type RetryOptions, sleep } from "./retry.js";

export interface ClientOptions {
    /**
     * The token of the calls, or a function that returns it before each attempt, such as one that reads a file. If the server refuses the token (401)
     * and the function then returns another one, the call is sent once more.
     */
    token?: string | (() => string | Promise<string>);
    /** How calls are repeated. */
    retry?: Partial<RetryOptions>;
    /** Timeout of one attempt in milliseconds, not counting the `wait` of the call. Default 30,000. */
    timeoutMs?: number;
    /** Sends requests instead of the runtime's `fetch`. */
    fetch?: typeof globalThis.fetch;
}

/** Options that every call has. */
export interface CallOptions {
    /** Aborts the call, which then rejects with the reason of the signal. */
    signal?: AbortSignal | undefined;
    /** How this call is repeated, instead of the options of the client. */
    retry?: Partial<RetryOptions> | undefined;
    /** Timeout of one attempt, instead of that of the client. */
    timeoutMs?: number | undefined;
}

type QueryValue = string | number | boolean | readonly string[] | undefined;

/** A call of the API. */
export interface Call {
    method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
    /** The segments of the path, not encoded. */
    path: readonly string[];
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
    readonly #base: string;
    readonly #options: ClientOptions;
    readonly #fetch: typeof globalThis.fetch;

    constructor(url: string, options: ClientOptions) {
        if (!/^https?:\/\//.test(url)) {
            throw new TypeError(`"${url}" is not the URL of a server; it must begin with http:// or https://`);
        }
        this.#base = url.replace(/\/+$/, "");
        this.#options = options;
        // A browser's fetch works only as a method of the window.
        this.#fetch = options.fetch ?? ((request, init) => globalThis.fetch(request, init));
    }

    get hasToken(): boolean {
        return this.#options.token !== undefined;
    }

    /** The URL of a call. */
    url({ path, query = {} }: Pick<Call, "path" | "query">): string {
        // Runtimes and proxies remove these segments, so that the path would name something else.
        const lost = path.find(segment => segment.split("/").some(part => ["", ".", ".."].includes(part)));
        if (lost !== undefined) {
            throw new TypeError(`"${lost}" is no name: a path can't have it as a part`);
        }
        const search = new URLSearchParams();
        for (const [name, value] of Object.entries(query)) {
            if (value !== undefined) {
                search.set(name, String(value));
            }
        }
        const text = search.toString();
        return `${this.#base}/${path.map(encodeURIComponent).join("/")}${text === "" ? "" : `?${text}`}`;
    }

    /** Sends a call, repeats it as the options say, and parses the reply. */
    async send(call: Call, options: CallOptions = {}, parse: Parse = JSON.parse): Promise<unknown> {
        const retry = { ...DEFAULT_RETRY, ...this.#options.retry, ...options.retry };
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
                await sleep(pause, options.signal);
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

    /** Sends the request and reads its reply within the timeout. */
    async #within<R>(
        call: Call,
        options: CallOptions,
        read: (response: Response, timer: ReturnType<typeof setTimeout>) => Promise<R>,
    ): Promise<R> {
        const { signal } = options;
        // If this line throws, the caller has made a mistake: for example, the token contains a character that is not allowed in a header.
        const token = await this.#token();
        const request = this.#request(call, token);
        signal?.throwIfAborted();
        const attempt = new AbortController();
        const abort = () => attempt.abort(signal?.reason);
        signal?.addEventListener("abort", abort, { once: true });
        const timeoutMs = (options.timeoutMs ?? this.#options.timeoutMs ?? 30_000) + (call.waitMs ?? 0);
        const timer = setTimeout(() => attempt.abort(new ConnectionError(`${nameOf(call)}: no reply within ${timeoutMs} ms`)), timeoutMs);
        let isStream = false;
        try {
            let response = await this.#fetch(request, { signal: attempt.signal });
            if (response.status === 401) {
                const replaced = await this.#token();
                if (replaced !== token) {
                    await response.body?.cancel();
                    response = await this.#fetch(this.#request(call, replaced), { signal: attempt.signal });
                }
            }
            await refuse(call, response);
            const result = await read(response, timer);
            isStream = result instanceof ReadableStream;
            return result;
        } catch (error) {
            if (signal?.aborted) {
                throw signal.reason;
            }
            if (error instanceof DeltaqError) {
                throw error;
            }
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
        }
    }

    async #token(): Promise<string | undefined> {
        const { token } = this.#options;
        return typeof token === "function" ? await token() : token;
    }

    #request(call: Call, token: string | undefined): Request {
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
        return new Request(this.url(call), init);
    }
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
