/** What a client, a worker and an informer report if the caller says nothing else. */

import assert from "node:assert/strict";
import test from "node:test";

import { Client, Informer, type Logger, Nack, Reject, waitForCacheSync, Worker } from "../src/index.js";
import { ConnectionError } from "../src/error.js";
import { Notices } from "../src/notices.js";
import { refuse, Server, until, web } from "./server.js";

/** A logger that keeps its lines. */
function keeper(): Logger & { lines: string[] } {
    const lines: string[] = [];
    return { lines, warn: line => lines.push(`warn ${line}`), info: line => lines.push(`info ${line}`) };
}

/** A URL where no server is. */
const NOWHERE = "http://127.0.0.1:2";

test("a row of failures is reported once a minute, and its end once", () => {
    const logger = keeper();
    let now = 0;
    const notices = new Notices(NOWHERE, logger, () => now);
    const error = new ConnectionError("POST /x: fetch failed", { cause: new TypeError("fetch failed", { cause: Object.assign(new AggregateError([Object.assign(new Error(""), { code: "ECONNREFUSED" })])) }) });
    notices.answered();
    for (now of [0, 1_000, 59_999, 60_000, 61_000]) {
        notices.repeated(error, "the add of the queue \"q\"", "for at most 2m");
    }
    notices.answered();
    notices.answered();
    notices.failed(error, "the pop of the queue \"q\"");
    for (now of [62_000, 63_000, 123_000]) {
        notices.failed(new Error("no"), "the pop of the queue \"q\"");
    }
    const row = `warn deltaq: can't reach ${NOWHERE} (connection refused); the add of the queue "q" is repeated (for at most 2m)`;
    const again = `warn deltaq: can't reach ${NOWHERE} (connection refused); the pop of the queue "q" is repeated`;
    const refused = "warn deltaq: the pop of the queue \"q\" is repeated after an error: no";
    assert.deepEqual(logger.lines, [row, row, `info deltaq: ${NOWHERE} answers again`, again, refused, refused]);
});

test("a call that is repeated warns, and so does its end", async t => {
    const logger = keeper();
    let count = 0;
    const cut: typeof fetch = async (input, init) => {
        count += 1;
        return count <= 3 ? fetch(`${NOWHERE}/x`, { method: "POST" }) : fetch(input, init);
    };
    const server = await Server.start(t);
    const queue = server.client({ logger, fetch: cut, retry: { first: "1ms" } }).queue("prices");
    await queue.add({ key: "a" });
    assert.deepEqual(logger.lines, [
        `warn deltaq: can't reach ${server.url} (connection refused); the add of the queue "prices" is repeated (for at most 2m)`,
        `info deltaq: ${server.url} answers again`,
    ]);
    await assert.rejects(new Client(NOWHERE, { logger, retry: { attempts: 2, first: "1ms" } }).info());
    assert.match(logger.lines[2] ?? "", /the call GET \/v1\/info is repeated \(at most 2 attempts, for at most 2m\)/);
    assert.equal(logger.lines.length, 3);
});

test("without a logger, the console gets warnings, and nothing is written to the output", async t => {
    const server = await Server.start(t);
    let count = 0;
    const cut: typeof fetch = async (input, init) => {
        count += 1;
        return count === 1 ? fetch(`${NOWHERE}/x`, { method: "POST" }) : fetch(input, init);
    };
    const [warn, info, log] = (["warn", "info", "log"] as const).map(name => t.mock.method(console, name, () => undefined).mock);
    await server.client({ fetch: cut, retry: { first: "1ms" } }).info();
    assert.deepEqual([warn?.callCount(), info?.callCount(), log?.callCount()], [2, 0, 0]);
    assert.match(String(warn?.calls[1]?.arguments[0]), /answers again/);
});

test("a problem that is retryable is no outage", async t => {
    const logger = keeper();
    const url = await web(t, (_, response, count) => (count === 1 ? refuse(response, { code: "draining", retryable: true }) : response.end("{}")));
    await new Client(url, { logger, retry: { first: "1ms" } }).info();
    assert.deepEqual(logger.lines, []);
});

test("a worker without onError warns of an outage, of failures and of parked keys; the token is in no line", async t => {
    const server = await Server.start(t);
    await server.queue().add([{ key: "a" }, { key: "b" }]);
    await server.queue().patchSettings({ max_failures: 1 });
    const logger = keeper();
    let count = 0;
    const cut: typeof fetch = async (input, init) => {
        count += 1;
        return count <= 2 ? fetch(`${NOWHERE}/x`, { method: "POST" }) : fetch(input, init);
    };
    const queue = server.client({ logger, fetch: cut, token: "secret", retry: { first: "1ms" } }).queue("prices");
    const stop = new AbortController();
    let handled = 0;
    const worker = new Worker(queue, ({ key }) => {
        handled += 1;
        if (handled === 2) {
            stop.abort();
        }
        if (key === "a") {
            throw new Error("no price");
        }
        return Reject({ error: "never" });
    });
    await worker.run({ signal: stop.signal });
    const lines = logger.lines.map(line => line.replace(/\n[^]*/, ""));
    assert.deepEqual(lines, [
        `warn deltaq: can't reach ${server.url} (connection refused); the pop of the queue "prices" is repeated`,
        `info deltaq: ${server.url} answers again`,
        "warn deltaq: the handler of \"a\" failed (queue \"prices\", attempt 1): Error: no price",
        "warn deltaq: the key \"a\" of the queue \"prices\" is parked: no price",
        "warn deltaq: the key \"b\" of the queue \"prices\" is parked: never",
    ]);
    assert.ok(!logger.lines.join().includes("secret"));
});

test("a worker with onError warns of nothing", async t => {
    const server = await Server.start(t);
    const queue = server.client({ logger: { warn: assert.fail, info: assert.fail } }).queue("prices");
    await queue.add({ key: "a" });
    await queue.patchSettings({ max_failures: 1 });
    await queue.close();
    const keys: unknown[] = [];
    const fail = () => {
        throw new Error("no price");
    };
    await new Worker(queue, fail, { onError: (_, key) => keys.push(key) }).run();
    assert.deepEqual(keys, ["a"]);
    // The reply that the queue is closed says how the last keys are settled.
    const logger = keeper();
    await queue.redrive({ all: true });
    await new Worker(server.client({ logger }).queue("prices"), fail).run();
    assert.deepEqual(logger.lines.slice(1), ["warn deltaq: the key \"a\" of the queue \"prices\" is parked: no price"]);
});

test("an outcome that a handler throws is its outcome, and no error", async t => {
    const server = await Server.start(t);
    const queue = server.queue();
    await queue.add([{ key: "a" }, { key: "b" }]);
    await queue.patchSettings({ max_failures: 1 });
    await queue.close();
    const errors: unknown[] = [];
    const worker = new Worker(
        queue,
        ({ key }) => {
            throw key === "a" ? Reject({ error: "never" }) : Nack({ error: "later" });
        },
        { onError: error => errors.push(error) },
    );
    await worker.run();
    assert.deepEqual([(await queue.item("a"))?.last_error, (await queue.item("b"))?.last_error], ["never", "later"]);
    assert.deepEqual(errors, []);
});

test("an informer without onError warns of an outage, of failures, and of a queue that does not exist", async t => {
    const server = await Server.start(t);
    const logger = keeper();
    let count = 0;
    const cut: typeof fetch = async (input, init) => {
        count += 1;
        return count <= 2 ? fetch(`${NOWHERE}/x`, { method: "POST" }) : fetch(input, init);
    };
    const queue = server.client({ logger, fetch: cut, retry: { first: "1ms" } }).queue("prices");
    const informer = new Informer(queue);
    const handler = informer.addHandler({
        onAdd: () => {
            throw new Error("no city");
        },
    });
    const stop = new AbortController();
    const running = informer.run({ signal: stop.signal });
    await until(() => logger.lines.length === 3, "the informer has said that the queue does not exist");
    await server.queue().add({ key: "a" });
    await waitForCacheSync([informer, handler]);
    stop.abort();
    await running;
    assert.deepEqual(logger.lines.map(line => line.replace(/\n[^]*/, "")), [
        `warn deltaq: can't reach ${server.url} (connection refused); the watch of the queue "prices" is repeated`,
        `info deltaq: ${server.url} answers again`,
        "warn deltaq: the watch of the queue \"prices\" is repeated after an error: the queue does not exist yet",
        "warn deltaq: the handler of \"a\" failed (an informer of the queue \"prices\"): Error: no city",
    ]);
});

test("a version that expires right after its list is listed again in silence, once", async t => {
    let lists = 0;
    const expired = { status: 410, code: "expired", title: "", detail: "no", request_id: "1", type: "", retryable: false };
    const headers = { "content-type": "application/problem+json" };
    const fetch = async (request: unknown) => {
        if ((request as Request).url.includes("/latest")) {
            lists += 1;
            return new Response('{"items":[],"continue":null,"resource_version":7}');
        }
        return new Response(JSON.stringify(expired), { status: 410, headers });
    };
    const errors: string[] = [];
    const queue = new Client("http://localhost:7070", { fetch: fetch as typeof globalThis.fetch, retry: { first: "1ms", max: "1ms" } }).queue("q");
    const stop = new AbortController();
    const seen: number[] = [];
    const informer = new Informer(queue, {
        onError: error => {
            errors.push((error as { code: string }).code);
            seen.push(lists);
            stop.abort();
        },
    });
    t.after(() => stop.abort());
    await informer.run({ signal: stop.signal });
    assert.deepEqual([errors, seen], [["expired"], [2]]);
});
