/** Which of several servers gets the next call: the nodes of one cluster, any of which accepts any call. */

/** If there is another server: a server that was silent for so long is asked whether it is alive, before a call is sent to it and while a call waits for it. */
export const SILENCE_MS = 3_000;
/** Statuses of a server that can't answer at present, or of a proxy whose server can't. */
const UNAVAILABLE = [502, 503, 504];
/** Queues whose owner is remembered. */
const OWNERS_MAX = 10_000;

export class Servers {
    readonly #bases: readonly string[];
    #present = 0;
    /** The owners of queues, as servers have named them. Only a server of this list counts: the token goes to no other. */
    readonly #owners = new Map<string, number>();
    /** When the servers have answered last. */
    readonly #heardMs = new Map<string, number>();

    constructor(urls: string) {
        this.#bases = [...new Set(urls.split(",").map(url => {
            const base = baseOf(url.trim());
            if (base === undefined) {
                // The URL may have a password.
                throw new TypeError("the URL of a server must begin with http:// or https:// and have no user; the URLs of several nodes have commas between them");
            }
            return base;
        }))];
    }

    /** The URLs, for messages. They have no user and no password. */
    get names(): string {
        return this.#bases.join(", ");
    }

    get count(): number {
        return this.#bases.length;
    }

    /** The server for the next call with this path. */
    next(path: readonly string[]): string {
        const queue = queueOf(path);
        const owner = queue === undefined ? undefined : this.#owners.get(queue);
        return this.#bases[owner ?? this.#present] as string;
    }

    /** Records that a call has failed at a server: the next call goes to the server after it. */
    leave(base: string, path: readonly string[]): void {
        const queue = queueOf(path);
        if (queue !== undefined) {
            this.#owners.delete(queue);
        }
        if (this.#bases[this.#present] === base) {
            this.#present = (this.#present + 1) % this.count;
        }
    }

    /** Records that a server has answered. */
    heard(base: string): void {
        this.#heardMs.set(base, performance.now());
    }

    /** Whether a server has not answered for a while. */
    isSilent(base: string): boolean {
        return performance.now() - (this.#heardMs.get(base) ?? -Infinity) >= SILENCE_MS;
    }

    /** Records a reply. `owner` is its header `deltaq-owner`. */
    answered(base: string, path: readonly string[], status: number, owner: string | null): void {
        if (this.count === 1) {
            return;
        }
        this.heard(base);
        const queue = queueOf(path);
        if (UNAVAILABLE.includes(status)) {
            this.leave(base, path);
        } else if (queue !== undefined && owner !== null) {
            if (this.#owners.size >= OWNERS_MAX) {
                this.#owners.clear();
            }
            const index = this.#bases.indexOf(baseOf(owner) ?? "");
            if (index >= 0) {
                this.#owners.set(queue, index);
            } else {
                this.#owners.delete(queue);
            }
        }
    }
}

/** A URL in the form in which equal ones are equal texts; undefined if it is not that of a server. */
function baseOf(text: string): string | undefined {
    // The parser drops some characters that no URL has.
    if (!/^https?:\/\/[!-~]+$/.test(text) || !URL.canParse(text)) {
        return undefined;
    }
    const { origin, pathname, search, hash, username, password } = new URL(text);
    return [search, hash, username, password].some(part => part !== "") ? undefined : origin + pathname.replace(/\/+$/, "");
}

function queueOf(path: readonly string[]): string | undefined {
    return path[0] === "v1" && path[1] === "queues" ? path[2] : undefined;
}
