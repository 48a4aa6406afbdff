/** Workers, against a server. The scenarios of tests/clients have the faults. */

import assert from "node:assert/strict";
import test from "node:test";

import { Ack, Client, Done, Nack, Reject, Release, Worker } from "../src/index.js";
import { Server, until } from "./server.js";

test("each outcome settles its key", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add(["nothing", "ack", "nack", "reject", "release", "throw", "wrong", "mute", "half", "error", "delay", "long"].map(key => ({ key })));
    const stop = new AbortController();
    const errors: unknown[] = [];
    let released = 0;
    const worker = new Worker(
        queue,
        ({ key }) => {
            switch (key) {
                case "ack":
                    return Ack();
                case "nack":
                    return Nack({ delay: "1h", error: "later" });
                case "reject":
                    return Reject({ error: "never" });
                case "release":
                    released += 1;
                    return released === 1 ? Release() : Ack();
                case "throw":
                    throw new Error("thrown by the handler");
                case "wrong":
                    return "ack" as any;
                case "mute":
                    throw Object.create(null);
                case "half":
                    throw new Error("half \ud800");
                case "error":
                    return Reject({ error: new Error("as an object") as any });
                case "delay":
                    return Nack({ delay: "soon" });
                case "long":
                    return Nack({ delay: "367d" });
            }
        },
        { concurrency: 3, onError: (_, key) => errors.push(key) },
    );
    const running = worker.run({ signal: stop.signal });
    await until(async () => (await queue.known().all()).length === 3, "three keys are acknowledged");
    const odd = ["wrong", "mute", "half", "error", "delay", "long"];
    const failures = async () => Promise.all(odd.map(async key => (await queue.item(key))?.last_error ?? ""));
    await until(async () => !(await failures()).includes(""), "odd outcomes are failures");
    stop.abort();
    await running;
    assert.deepEqual((await queue.known().all()).map(object => object.key).sort(), ["ack", "nothing", "release"]);
    assert.equal((await queue.item("nack"))?.last_error, "later");
    assert.equal((await queue.item("reject"))?.state, "parked");
    assert.equal((await queue.item("throw"))?.last_error, "thrown by the handler");
    assert.match((await queue.item("wrong"))?.last_error ?? "", /something else than Ack\(\)/);
    const [, mute, half, error, delay, long] = await failures();
    assert.deepEqual([mute, half, error], ["an error without a text", "half \ufffd", "as an object"]);
    assert.match(`${delay} and ${long}`, /"soon" is not a duration.* and a delay may have 366 days/);
    assert.ok(errors.includes("throw"));
    assert.equal((await queue.status()).leased, 0);
});

test("a worker waits for its queue, and says once that it does not exist", async t => {
    const queue = (await Server.start(t)).queue("stok");
    const stop = new AbortController();
    const errors: string[] = [];
    const running = new Worker(queue, () => stop.abort(), { onError: error => errors.push((error as Error).message) }).run({ signal: stop.signal });
    await until(() => errors.length > 0, "the worker has said it");
    await queue.add({ key: "a" });
    await running;
    assert.deepEqual(errors, ["queue stok does not exist yet"]);
    assert.equal((await queue.status()).known, 1);
    await queue.deleteQueue();
    const waiting = new AbortController();
    await new Worker(queue, () => assert.fail("no key is there"), { onError: () => waiting.abort() }).run({ signal: waiting.signal });
});

test("a worker whose onError throws ends with that error, and settles its keys", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add([{ key: "a" }, { key: "b" }]);
    const worker = new Worker(
        queue,
        () => {
            throw new Error("no price");
        },
        {
            onError: error => {
                throw new Error(`no log for ${(error as Error).message}`);
            },
        },
    );
    await assert.rejects(worker.run(), /no log for no price/);
    assert.equal((await queue.status()).leased, 0);
    assert.equal((await queue.item("a"))?.last_error, "no price");
});

test("a worker ends when its queue is closed and drained", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add(Array.from({ length: 50 }, (_, n) => ({ key: `k${n}` })));
    await queue.close();
    const tokens = new Set<number>();
    let [most, running] = [0, 0];
    const handler = async (_: unknown, context: { token: number }) => {
        running += 1;
        most = Math.max(most, running);
        tokens.add(context.token);
        await new Promise(resolve => setTimeout(resolve, 5));
        running -= 1;
    };
    await new Worker(queue, handler, { concurrency: 8 }).run();
    assert.equal(tokens.size, 50);
    assert.equal(most, 8);
    assert.equal((await queue.status()).known, 50);
});

test("a batch has one outcome, or one for each key", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add(Array.from({ length: 10 }, (_, n) => ({ key: `k${n}` })));
    await queue.close();
    const sizes: number[] = [];
    const worker = Worker.batches(
        queue,
        deliveries => {
            sizes.push(deliveries.length);
            return deliveries.map(({ item }) => (item.key === "k3" ? Reject({ error: "odd" }) : Ack()));
        },
        { batch: 4 },
    );
    await worker.run();
    assert.deepEqual(sizes, [4, 4, 2]);
    const status = await queue.status();
    assert.deepEqual([status.known, status.parked], [9, 1]);
});

test("a batch handler that loses a key fails the whole batch", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.putSettings({ max_failures: 1 });
    await queue.add([{ key: "a" }, { key: "b" }]);
    await queue.close();
    await Worker.batches(queue, () => [Ack()]).run();
    assert.match((await queue.item("a"))?.last_error ?? "", /1 outcomes for 2 keys/);
    assert.equal((await queue.status()).parked, 2);
});

test("mode keys: Done with a delay brings the key again", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.putSettings({ mode: "keys" });
    await queue.addKey("k");
    const stop = new AbortController();
    let count = 0;
    await new Worker(
        queue,
        () => {
            count += 1;
            if (count === 3) {
                stop.abort();
                return Ack();
            }
            return Done({ delay: "1ms" });
        },
        {},
    ).run({ signal: stop.signal });
    assert.equal(count, 3);
});

test("the lease of a running handler is extended, and the handler hears of newer changes", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add({ key: "a" });
    const stop = new AbortController();
    const worker = new Worker(
        queue,
        async (_, context) => {
            await queue.deleteKey("a");
            await until(() => context.pendingDeltas === 1, "an extension has reported the deletion");
            assert.equal(context.deleted, true);
            const deadline = () => performance.now() + context.remainingMs;
            const before = deadline();
            await until(() => deadline() > before + 1_000, "the lease is extended");
            stop.abort();
        },
        { leaseDuration: "9s" },
    );
    await worker.run({ signal: stop.signal });
    assert.equal((await queue.status()).known, 1);
});

test("the stop waits for handlers, then aborts them; their keys are released without a failure", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add([{ key: "fast" }, { key: "slow" }]);
    const stop = new AbortController();
    let started = 0;
    const worker = new Worker(
        queue,
        async (item, context) => {
            started += 1;
            if (item.key === "fast") {
                await until(() => stop.signal.aborted, "the stop");
            } else {
                await new Promise((_, reject) => context.signal.addEventListener("abort", () => reject(context.signal.reason)));
            }
        },
        { concurrency: 2, grace: "300ms" },
    );
    const running = worker.run({ signal: stop.signal });
    await until(() => started === 2, "both handlers run");
    stop.abort();
    await running;
    assert.deepEqual((await queue.known().all()).map(object => object.key), ["fast"]);
    const slow = await queue.item("slow");
    assert.deepEqual([slow?.state, slow?.failures], ["ready", 0]);
});

test("the stop of an idle worker ends its pop at once, and leases nothing", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.putSettings();
    const stop = new AbortController();
    const running = new Worker(queue, () => assert.fail("no key is there")).run({ signal: stop.signal });
    await until(async () => (await queue.status()).waiters === 1, "the pop waits");
    stop.abort();
    await running;
    const { waiters, leased } = await queue.status();
    assert.deepEqual([waiters, leased], [0, 0]);
});

test("a worker survives a restart of the server, and throws what no repetition helps", async t => {
    const server = await Server.start(t);
    const queue = server.queue();
    await queue.putSettings();
    const errors: unknown[] = [];
    const stop = new AbortController();
    const running = new Worker(queue, () => stop.abort(), { onError: error => errors.push(error) }).run({ signal: stop.signal });
    await server.stop("SIGKILL");
    await until(() => errors.length > 0, "the worker has noticed");
    await server.run();
    await queue.add({ key: "a" });
    await running;
    assert.equal((await queue.status()).known, 1);
    await assert.rejects(new Worker(queue, () => undefined, { wait: "70s" }).run(), { code: "invalid-parameter", status: 400 });
    assert.throws(() => new Worker(queue, () => undefined, { concurrency: 0 }), /concurrency is 0/);
});

test("keys whose delivery the stop has interrupted are released at once", async t => {
    const server = await Server.start(t);
    const queue = server.queue();
    await queue.add([{ key: "a" }, { key: "b" }]);
    const stop = new AbortController();
    let isHeld = false;
    /** Holds the reply to the first pop until the worker stops. */
    const holding: typeof fetch = async (input, init) => {
        const request = input as Request;
        if (isHeld || !request.url.includes("/pop?")) {
            return fetch(request, init);
        }
        isHeld = true;
        await (await fetch(request)).text();
        stop.abort();
        throw init?.signal?.reason;
    };
    const worker = new Worker(server.client({ fetch: holding }).queue("prices"), () => assert.fail("the worker stops"), { concurrency: 2 });
    await worker.run({ signal: stop.signal });
    const items = await queue.items({ state: ["ready", "delayed", "leased"] }).all();
    assert.deepEqual(items.map(item => [item.key, item.state, item.failures]), [["a", "ready", 0], ["b", "ready", 0]]);
});

test("a handler that a worker can't call is refused when the worker is made", async () => {
    const queue = new Client("http://localhost:7070").queue("q");
    for (const wrong of [undefined, "work", (_item: unknown, _context: unknown, _more: unknown) => undefined]) {
        assert.throws(() => new Worker(queue, wrong as any), TypeError);
    }
    assert.throws(() => Worker.batches(queue, ((_item: unknown, _context: unknown) => undefined) as any), TypeError);
    new Worker(queue, (..._all) => undefined);
    new Worker(queue, () => undefined);
});
