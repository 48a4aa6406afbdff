/** Says what would otherwise happen in silence: repeats, and failures of handlers. */

import { type DeltaqError, isUnreachable, messageOf, reasonOf } from "./error.js";

/** Gets what a client, its workers and its informers report. */
export interface Logger {
    warn(message: string): void;
    info(message: string): void;
}

/** The console. Notes go to the standard error of a program, too, because its output may be data. */
const CONSOLE: Logger = { warn: message => console.warn(message), info: message => console.warn(message) };

/** While a failure goes on, it is reported once in this time, in milliseconds. */
const AGAIN_MS = 60_000;

/** What one client reports. A row of failures begins with a failure, and ends when a server answers. */
export class Notices {
    readonly #servers: string;
    readonly #logger: Logger;
    readonly #now: () => number;
    /** When the row was reported last; undefined without a row. */
    #reportedMs: number | undefined;
    /** When the servers were reported to refuse calls, by the code of the problem. */
    readonly #refusedMs = new Map<string, number>();

    constructor(servers: string, logger: Logger = CONSOLE, now = () => performance.now()) {
        this.#servers = servers;
        this.#logger = logger;
        this.#now = now;
    }

    warn(message: string): void {
        this.#logger.warn(`deltaq: ${message}`);
    }

    /** A call has failed and is repeated, because no server answers. `what` is the call, such as `the pop of the queue "x"`. */
    repeated(error: DeltaqError, what: string, limit = ""): void {
        const now = this.#now();
        if (isUnreachable(error) && now - (this.#reportedMs ?? -Infinity) >= AGAIN_MS) {
            this.#reportedMs = now;
            this.warn(`can't reach ${this.#servers} (${reasonOf(error)}); ${what} is repeated${limit === "" ? "" : ` (${limit})`}`);
        }
    }

    /** A worker or an informer repeats a call after this error, whatever its reason is. */
    failed(error: unknown, what: string): void {
        if (isUnreachable(error)) {
            this.repeated(error, what);
            return;
        }
        const now = this.#now();
        const code = (error as Partial<DeltaqError>).code ?? "";
        if (now - (this.#refusedMs.get(code) ?? -Infinity) >= AGAIN_MS) {
            this.#refusedMs.set(code, now);
            this.warn(`${what} is repeated after an error: ${messageOf(error)}`);
        }
    }

    /** A handler has failed. `where` has the queue and, for a worker, the attempt. */
    handlerFailed(error: unknown, key: string, where: string): void {
        const text = error instanceof Error && error.stack !== undefined ? error.stack : messageOf(error);
        this.warn(`the handler of "${key}" failed (${where}): ${text}`);
    }

    /** A server has answered. */
    answered(): void {
        if (this.#reportedMs !== undefined) {
            this.#reportedMs = undefined;
            this.#logger.info(`deltaq: ${this.#servers} answers again`);
        }
    }
}
