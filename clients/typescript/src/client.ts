/** A deltaq server. */

import type { Info, NodeList, QueueDocument, QueuePage } from "./documents.js";
import { parseAroundObjects } from "./json.js";
import { List } from "./list.js";
import { Queue } from "./queue.js";
import { type CallOptions, type ClientOptions, Transport } from "./transport.js";

/**
 * A client of one server. It keeps no connections itself, so there is nothing to close. The URL may be those of several nodes of one cluster, with commas
 * between them: if a node can't be reached, the client goes on at the next one.
 */
export class Client {
    readonly #transport: Transport;

    /** A client of the server at this URL, such as `http://localhost:7070`. */
    constructor(url: string, options: ClientOptions = {}) {
        this.#transport = new Transport(url, options);
    }

    /** A queue whose objects are parsed with `JSON.parse`. This method sends nothing. */
    queue<T = unknown>(name: string): Queue<T> {
        checkName(name);
        return new Queue<T>(this.#transport, name, JSON.parse);
    }

    /** A queue whose objects are JSON text, exactly as the server has it. This method sends nothing. */
    rawQueue(name: string): Queue<string> {
        checkName(name);
        return new Queue<string>(this.#transport, name, parseAroundObjects);
    }

    /** The queues by name. The pages list queues that currently can't be read in `unavailable`. */
    queues(options: CallOptions & { prefix?: string | undefined; limit?: number | undefined } = {}): List<QueueDocument, QueuePage> {
        const { prefix, limit, ...call } = options;
        return new List(async token => {
            const query = { prefix, limit, continue: token };
            return (await this.#transport.send({ method: "GET", path: ["v1", "queues"], query }, call)) as QueuePage;
        });
    }

    /** Version, durability, store and limits of the server. */
    async info(options: CallOptions = {}): Promise<Info> {
        return (await this.#transport.send({ method: "GET", path: ["v1", "info"] }, options)) as Info;
    }

    /** The nodes that share the database of the server; none for a single server. */
    async nodes(options: CallOptions = {}): Promise<NodeList> {
        return (await this.#transport.send({ method: "GET", path: ["v1", "nodes"] }, options)) as NodeList;
    }

    /** Returns once the server has loaded all queues. Throws after the time limit of the retries, two minutes by default. */
    async ready(options: CallOptions = {}): Promise<void> {
        await this.#transport.send({ method: "GET", path: ["readyz"] }, options);
    }
}

/** Throws if the name of a queue is missing. The calls refuse a text that is no name. */
function checkName(name: unknown): void {
    if (typeof name !== "string") {
        throw new TypeError(`the name of a queue is ${String(name)}; it must be a text, such as "prices"`);
    }
}
