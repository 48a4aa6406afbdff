/**
 * The scenario program of tests/clients: it uses the client as an application would. tests/clients/README.md describes its settings, commands and
 * reports.
 */

import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

import {
    Ack,
    type AddOptions,
    Client,
    type Context,
    DeletedFinalStateUnknown,
    DeltaqError,
    Done,
    Informer,
    Nack,
    type Outcome,
    type PoppedItem,
    Release,
    type Queue,
    Reject,
    waitForCacheSync,
    Worker,
} from "../src/index.js";

type Settings = Record<string, string | undefined>;
type Command = Record<string, any>;

const settings: Settings = process.env;
const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());

function report(event: object): void {
    process.stdout.write(`${JSON.stringify(event)}\n`);
}

function need(name: string): string {
    const value = settings[name];
    if (value === undefined) {
        throw new Error(`the environment lacks ${name}`);
    }
    return value;
}

function openQueue(): Queue<any> {
    const { DELTAQ_TOKEN_FILE: file, MAX_ATTEMPTS: attempts } = settings;
    const token = settings["DELTAQ_TOKEN"];
    const retry = attempts === undefined ? {} : { attempts: Number(attempts) };
    return new Client(need("DELTAQ_URL"), { retry, ...(token !== undefined && { token }), ...(file !== undefined && { tokenSource: () => readFile(file, "utf8") }) }).queue(need("DELTAQ_QUEUE"));
}

/** The commands of standard input, until its end or the stop. */
async function* commands(): AsyncGenerator<Command, void, void> {
    const input = createInterface({ input: process.stdin });
    stop.signal.addEventListener("abort", () => input.close(), { once: true });
    for await (const line of input) {
        if (line !== "") {
            yield JSON.parse(line);
        }
    }
}

async function post(url: string, body: unknown): Promise<any> {
    const headers = { "content-type": "application/json" };
    const reply = await fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal: AbortSignal.timeout(30_000) });
    if (reply.status !== 200) {
        throw new Error(`the target has answered ${reply.status}`);
    }
    return reply.json();
}

async function handle(item: PoppedItem<any>, context: Context): Promise<Outcome | void> {
    const newest = item.deltas.at(-1);
    const body = {
        worker: settings["WORKER_NAME"],
        key: item.key,
        token: String(context.token),
        attempt: item.attempt,
        lease_id: context.leaseId,
        versions: item.deltas.map(delta => String(delta.resource_version)),
        type: newest?.type ?? null,
        object: newest?.object ?? null,
    };
    const { as, explicit, hold, hold_scope: holdScope, delay, floor, error, message, before_write } = await post(`${need("TARGET_URL")}/start`, body);
    if (as === "panic" && before_write) {
        throw new Error(message);
    }
    if (context.signal.aborted) {
        return;
    }
    await post(`${need("TARGET_URL")}/write`, body);
    const options = { ...(delay !== undefined && { delay }), ...(error !== undefined && { error }) };
    switch (as) {
        case "ack":
            return explicit ? Ack() : undefined;
        case "nack":
            return Nack({ ...options, ...(floor !== undefined && { floor }) });
        case "release":
            return Release({ hold, holdScope });
        case "reject":
            return Reject(options);
        case "done":
            return Done(options);
        default:
            throw new Error(message);
    }
}

async function work(): Promise<void> {
    const { CONCURRENCY = "1", BATCH, BREAKER, GROUP: group, LEASE: leaseDuration } = settings;
    const worker = new Worker(openQueue(), handle, {
        concurrency: Number(CONCURRENCY),
        name: need("WORKER_NAME"),
        ...(BATCH !== undefined && { batch: Number(BATCH) }),
        ...(BREAKER !== undefined && { breaker: Number(BREAKER) }),
        ...(group !== undefined && { group }),
        ...(leaseDuration !== undefined && { leaseDuration }),
        grace: "10s",
        onPause: pause => console.error(pause === undefined ? "the worker goes on" : `the worker pauses for ${pause.ms} ms`),
        onError: (error, key) => console.error(key ?? "", error),
    });
    await worker.run({ signal: stop.signal });
}

/** The string at a JSON pointer. */
function stringAt(object: unknown, pointer: string): string[] {
    const path = pointer.split("/").slice(1).map(part => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    const value = path.reduce<any>((at, part) => at?.[part], object);
    return typeof value === "string" ? [value] : [];
}

async function inform(): Promise<void> {
    const { VIEW = "latest", INDEX, RESYNC, BOOKMARK } = settings;
    const [index, pointer] = INDEX?.split("=", 2) ?? [];
    const informer = new Informer<any>(openQueue(), {
        view: VIEW as "latest" | "known",
        ...(index !== undefined && pointer !== undefined && { indexes: { [index]: object => stringAt(object, pointer) } }),
        ...(RESYNC !== undefined && { resync: RESYNC }),
        ...(BOOKMARK !== undefined && { bookmark: BOOKMARK }),
        onError: (error, key) => console.error(key ?? "", error),
    });
    let handlers = 0;
    const addHandler = () => {
        const handler = ++handlers;
        const registration = informer.addHandler({
            onAdd: (object, is_in_initial_list, key) => report({ event: "add", handler, key, object, is_in_initial_list }),
            onUpdate: (old, object, key) => report({ event: "update", handler, key, old, new: object }),
            onDelete: (deleted, key) => {
                const final_state_unknown = deleted instanceof DeletedFinalStateUnknown;
                report({ event: "delete", handler, key, object: final_state_unknown ? deleted.object : deleted, final_state_unknown });
            },
        });
        registration.whenSynced().then(() => report({ event: "synced", handler }), () => undefined);
    };
    addHandler();
    const running = informer.run({ signal: stop.signal });
    running.catch(() => stop.abort());
    const answer = async ({ command, name, value, key }: Command) => {
        switch (command) {
            case "store":
                return report({ event: "store", objects: Object.fromEntries(informer.store.entries()) });
            case "index":
                return report({ event: "index", keys: informer.store.indexKeys(name, value).sort() });
            case "get":
                return report({ event: "get", object: informer.store.get(key) ?? null });
            case "handler":
                return addHandler();
            case "wait_for_sync":
                await waitForCacheSync(informer, { signal: stop.signal });
                return report({ event: "cache_synced" });
        }
    };
    for await (const command of commands()) {
        await answer(command).catch(() => undefined);
    }
    stop.abort();
    await running;
}

async function call(queue: Queue<any>, { command, objects, key, sequence }: Command): Promise<{ queued: number; duplicate?: boolean }> {
    const options: AddOptions = { signal: stop.signal };
    if (sequence !== undefined) {
        options.source = need("SOURCE");
        options.sequence = Number(sequence);
    }
    switch (command) {
        case "add":
            return queue.add(objects, options);
        case "update":
            return queue.update(objects, options);
        case "delete":
            return queue.deleteKey(key, options);
        case "replace":
            return queue.replace(objects, options);
        case "purge":
            await queue.purge(options);
            return { queued: 0 };
        case "remove":
            await queue.deleteQueue(options);
            return { queued: 0 };
        default:
            throw new Error(`unknown command ${command}`);
    }
}

async function produce(): Promise<void> {
    const queue = openQueue();
    for await (const command of commands()) {
        try {
            const { queued, duplicate = false } = await call(queue, command);
            report({ event: "reply", queued, duplicate });
        } catch (error) {
            if (!(error instanceof DeltaqError)) {
                if (stop.signal.aborted) {
                    return;
                }
                throw error;
            }
            const { code, status, retryable } = error;
            report({ event: "error", code: status === 0 ? null : code, status: status === 0 ? null : status, retryable });
        }
    }
}

async function readOnce(queue: Queue<any>, { command, key }: Command): Promise<{ key: string | null; object: any } | undefined> {
    switch (command) {
        case "item": {
            const item = await queue.item(key);
            return item && { key: item.key, object: item.deltas.at(-1)?.object };
        }
        case "latest":
            return queue.latestObject(key);
        case "known":
            return queue.knownObject(key);
        case "explain":
            return { key: (await queue.explain(key)).key, object: null };
        default: {
            const newest = (await queue.history(key).all()).find(event => event.event === "appended");
            return newest && { key: null, object: newest.object };
        }
    }
}

async function read(): Promise<void> {
    const queue = openQueue();
    for await (const command of commands()) {
        const { key, object } = (await readOnce(queue, command)) ?? { key: null, object: null };
        report({ event: "read", key, object });
    }
}

const [subcommand = ""] = process.argv.slice(2);
const subcommands: Record<string, () => Promise<void>> = { worker: work, informer: inform, produce, read };
const run = subcommands[subcommand];
if (run === undefined) {
    console.error("usage: scenario.js worker|informer|produce|read");
    process.exit(2);
}
try {
    await run();
    process.exit(0);
} catch (error) {
    console.error(error);
    process.exit(1);
}
