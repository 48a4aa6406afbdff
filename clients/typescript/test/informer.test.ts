/** Informers, against a server. The scenarios of tests/clients have the faults. */

import assert from "node:assert/strict";
import test, { type TestContext } from "node:test";

import { Client, DeletedFinalStateUnknown, Informer, type InformerOptions, type Queue, waitForCacheSync } from "../src/index.js";
import { Server, until } from "./server.js";

interface City {
    key: string;
    city: string;
}

/** A running informer, which ends with the test. */
function run(t: TestContext, queue: Queue<City>, options: InformerOptions<City> = {}): Informer<City> {
    const informer = new Informer(queue, options);
    const stop = new AbortController();
    const running = informer.run({ signal: stop.signal });
    t.after(async () => {
        stop.abort();
        await running;
    });
    return informer;
}

/** A handler that writes down what it gets. */
function recorder(seen: unknown[][]) {
    return {
        onAdd: (object: City, isInInitialList: boolean) => seen.push(["add", object.key, isInInitialList]),
        onUpdate: (old: City, object: City) => seen.push(["update", old.city, object.city]),
        onDelete: (deleted: City | DeletedFinalStateUnknown<City>, key: string) =>
            seen.push(["delete", key, deleted instanceof DeletedFinalStateUnknown ? deleted.object.city : deleted]),
    };
}

test("a store with indexes, handlers, and a late handler", async t => {
    const queue = (await Server.start(t)).queue<City>();
    await queue.add([{ key: "a", city: "Rome" }, { key: "b", city: "Oslo" }]);
    const informer = run(t, queue, { indexes: { byCity: object => [object.city] } });
    const seen: unknown[][] = [];
    const handler = informer.addHandler(recorder(seen));
    assert.equal(handler.hasSynced(), false);
    await waitForCacheSync([informer, handler]);
    assert.deepEqual(seen, [["add", "a", true], ["add", "b", true]]);
    assert.deepEqual(informer.store.byIndex("byCity", "Oslo").map(object => object.key), ["b"]);

    await queue.add({ key: "c", city: "Oslo" });
    await queue.update({ key: "a", city: "Bern" });
    await queue.delete({ key: "b", city: "Oslo" });
    await until(() => seen.length === 5, "three changes have come");
    assert.deepEqual(seen.slice(2), [["add", "c", false], ["update", "Rome", "Bern"], ["delete", "b", { key: "b", city: "Oslo" }]]);
    assert.deepEqual(informer.store.keys().sort(), ["a", "c"]);
    assert.deepEqual(informer.store.indexKeys("byCity", "Oslo"), ["c"]);

    const late: unknown[][] = [];
    const registration = informer.addHandler(recorder(late));
    await waitForCacheSync(registration);
    assert.deepEqual(late.map(([kind, key]) => [kind, key]).sort(), [["add", "a"], ["add", "c"]]);
    informer.removeHandler(registration);
    await queue.update({ key: "a", city: "Lima" });
    await until(() => seen.length === 6, "the first handler gets the change");
    assert.equal(late.length, 2);
});

test("a slow handler gets its changes in order, and does not hold up others", async t => {
    const queue = (await Server.start(t)).queue<City>();
    await queue.add({ key: "a", city: "0" });
    const informer = run(t, queue);
    const [slow, fast]: [string[], string[]] = [[], []];
    let open = () => {};
    const gate = new Promise<void>(resolve => (open = resolve));
    const errors: unknown[] = [];
    const first = informer.addHandler({
        onAdd: () => gate,
        onUpdate: (old, object) => {
            slow.push(`${old.city}>${object.city}`);
            throw new Error("an error of a handler ends nothing");
        },
    });
    const second = informer.addHandler({ onUpdate: (_, object) => fast.push(object.city) });
    await waitForCacheSync(second);
    for (const city of ["1", "2", "3"]) {
        await queue.update({ key: "a", city });
        await until(() => fast.at(-1) === city, "the fast handler has the change");
    }
    assert.deepEqual([slow, first.hasSynced(), errors], [[], false, []]);
    open();
    await until(() => slow.length === 3, "the slow handler has all changes");
    assert.deepEqual(slow, ["0>1", "1>2", "2>3"]);
    assert.equal(first.hasSynced(), true);
});

test("a resync updates each object with itself", async t => {
    const queue = (await Server.start(t)).queue<City>();
    await queue.add([{ key: "a", city: "Rome" }, { key: "b", city: "Oslo" }]);
    const informer = run(t, queue, { resync: "20ms" });
    const seen: unknown[][] = [];
    informer.addHandler(recorder(seen));
    await until(() => seen.length >= 6, "two resyncs have come");
    assert.deepEqual(seen.slice(2, 6).map(([kind]) => kind), Array(4).fill("update"));
    assert.deepEqual(new Set(seen.slice(2, 6).map(event => event.slice(1).join())), new Set(["Rome,Rome", "Oslo,Oslo"]));
});

test("the view of acknowledged objects, and a part of the keys", async t => {
    const queue = (await Server.start(t)).queue<City>();
    await queue.add([{ key: "a1", city: "Rome" }, { key: "b1", city: "Oslo" }]);
    const informer = run(t, queue, { view: "known", prefix: "a" });
    await waitForCacheSync(informer);
    assert.equal(informer.store.size, 0);
    const { items } = await queue.pop({ max: 2 });
    await queue.ack(items.map(item => item.lease.id));
    await until(() => informer.store.size === 1, "the acknowledged object is there");
    assert.deepEqual(informer.store.list(), [{ key: "a1", city: "Rome" }]);
});

test("a queue that is created again is listed again, and lost keys have an unknown final state", async t => {
    const queue = (await Server.start(t)).queue<City>();
    const errors: unknown[] = [];
    const informer = run(t, queue, { onError: error => errors.push(error) });
    const seen: unknown[][] = [];
    informer.addHandler(recorder(seen));
    await until(() => errors.length > 0, "the informer waits for the queue");
    await queue.add([{ key: "a", city: "Rome" }, { key: "b", city: "Oslo" }]);
    await waitForCacheSync(informer);
    await queue.deleteQueue();
    await queue.add([{ key: "b", city: "Bern" }, { key: "c", city: "Lima" }]);
    await until(() => informer.store.size === 2 && informer.store.get("c") !== undefined, "the new objects are there");
    await until(() => seen.length === 5, "all changes have come");
    assert.deepEqual(seen.slice(2), [["delete", "a", "Rome"], ["update", "Oslo", "Bern"], ["add", "c", false]]);
});

test("an informer survives a restart of the server without a new list", async t => {
    const server = await Server.start(t);
    const queue = server.queue<City>();
    await queue.add({ key: "a", city: "Rome" });
    const informer = run(t, queue);
    const seen: unknown[][] = [];
    await waitForCacheSync(informer.addHandler(recorder(seen)));
    await server.stop("SIGKILL");
    await server.run();
    await queue.add({ key: "b", city: "Oslo" });
    await until(() => informer.store.size === 2, "the new object is there");
    assert.deepEqual(seen, [["add", "a", true], ["add", "b", false]]);
});

test("an informer that can't go on says why", async t => {
    const queue = (await Server.start(t)).queue<City>();
    await queue.putSettings();
    const informer = new Informer(queue, { shard: "9/4" });
    const handler = informer.addHandler({});
    const running = informer.run();
    await assert.rejects(running, { code: "invalid-parameter" });
    await assert.rejects(waitForCacheSync([informer, handler]), { code: "invalid-parameter" });
    await assert.rejects(informer.run(), /runs once/);
    await assert.rejects(waitForCacheSync(new Informer(queue), { signal: AbortSignal.abort(new Error("enough")) }), /enough/);
    assert.throws(() => new Informer(queue, { transport: "eventsource" }), /no EventSource/);
});

test("an informer whose onError throws ends with that error", async t => {
    const queue = (await Server.start(t)).queue<City>();
    await queue.add([{ key: "a", city: "Rome" }, { key: "b", city: "Oslo" }]);
    const onError = (error: unknown) => {
        throw new Error(`no log for ${(error as Error).message}`);
    };
    const informer = new Informer(queue, { onError });
    const registration = informer.addHandler({
        onAdd: () => {
            throw new Error("no city");
        },
    });
    await assert.rejects(informer.run(), /no log for no city/);
    await assert.rejects(registration.whenSynced(), /no log for no city/);
    const late = informer.addHandler({});
    await assert.rejects(late.whenSynced(), /no log for no city/);
});

test("a watch that repeats what the list already had changes nothing", async t => {
    const server = await Server.start(t);
    const queue = server.queue<City>();
    await queue.add([{ key: "a", city: "Rome" }, { key: "b", city: "Oslo" }]);
    await queue.update({ key: "a", city: "Bern" });
    const { resource_version: first } = (await queue.latestObject("b"))!;
    /** Gives a list the version of its oldest object, as if the rest had changed while its pages were read. */
    const older: typeof fetch = async (input, init) => {
        const reply = await fetch(input, init);
        if (!(input as Request).url.includes("/latest?")) {
            return reply;
        }
        return new Response((await reply.text()).replace(/"resource_version":\d+\}\s*$/, `"resource_version":${first}}`), reply);
    };
    const informer = run(t, server.client({ fetch: older }).queue("prices"));
    const seen: unknown[][] = [];
    await waitForCacheSync(informer.addHandler(recorder(seen)));
    await queue.add({ key: "c", city: "Lima" });
    await until(() => informer.store.size === 3, "the new object is there");
    assert.deepEqual(seen, [["add", "a", true], ["add", "b", true], ["add", "c", false]]);
});

test("a watch that brings nothing new and ends at once is repeated after a pause", async t => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    let watches = 0;
    const fetch = async (request: unknown) => {
        const isList = (request as Request).url.includes("/latest");
        watches += isList ? 0 : 1;
        return new Response(isList ? '{"items":[],"continue":null,"resource_version":7}' : '{"type":"Bookmark","resource_version":7}\n');
    };
    const queue = new Client("http://localhost:7070", { fetch: fetch as typeof globalThis.fetch }).queue<City>("cities");
    run(t, queue);
    const idle = async () => {
        for (let turn = 0; turn < 200; turn += 1) {
            await new Promise(resolve => setImmediate(resolve));
        }
    };
    for (const expected of [1, 2, 3]) {
        await idle();
        assert.equal(watches, expected);
        t.mock.timers.tick(250);
    }
});
