/** The calls, against a server. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import test from "node:test";

import { CallAborted, Client, type DeltaqError, type ItemsOptions } from "../src/index.js";
import { refuse, Server, until, web } from "./server.js";

const busy = { status: 503, code: "draining", retryable: true };

test("the life of a key", async t => {
    const queue = (await Server.start(t)).queue<{ key: string; price: number }>();
    const created = await queue.putSettings({ lease: "1m", indexes: { by_price: "/price" } });
    assert.equal(created.settings.lease, "1m");
    const { resource_version, incarnation, life, ...counts } = await queue.add([{ key: "a", price: 1 }, { key: "b", price: 2 }]);
    const document = await queue.get();
    assert.deepEqual([incarnation, life], [document.incarnation, document.life]);
    assert.ok(Number.isSafeInteger(resource_version) && resource_version > 0);
    assert.deepEqual(counts, { queued: 2, merged: 0, ignored: 0, stale: 0, duplicate: false, sequence: null, keys: null, invalid: 0, invalid_objects: [] });
    const sequence = 2 ** 53 - 1;
    assert.equal((await queue.update({ key: "a", price: 3 }, { source: "erp", sequence })).queued, 1);
    assert.equal((await queue.update({ key: "a", price: 4 }, { source: "erp", sequence: 5 })).duplicate, true);
    assert.equal((await queue.sources().all())[0]?.sequence, sequence);

    const { items } = await queue.pop({ max: 10, worker: "me", withKnown: true });
    assert.deepEqual(items.map(item => [item.key, item.deltas.length]), [["a", 2], ["b", 1]]);
    const [first, second] = items.map(item => item.lease.id) as [string, string];
    assert.ok(Number.isSafeInteger(items[0]!.lease.token));
    assert.equal((await queue.workers().all())[0]?.leased, 2);
    assert.equal((await queue.extend(first, { leaseDuration: "2m" })).settled[0]?.result, "ok");
    assert.equal((await queue.settle([{ lease_id: first, as: "ack" }])).stale, 0);
    assert.deepEqual((await queue.nack([second], { delay: "5m", floor: true, error: "no route" })).settled.map(settled => [settled.result, settled.failures]), [["ok", 1]]);
    assert.equal((await queue.explain("b")).reason, "backing_off");
    assert.equal((await queue.item("b"))?.last_error, "no route");
    assert.equal(await queue.item("c"), undefined);

    assert.deepEqual((await queue.knownObject("a"))?.object, { key: "a", price: 3 });
    assert.equal(await queue.knownObject("b"), undefined);
    assert.equal((await queue.latestObject("b"))?.object.price, 2);
    await until(async () => (await queue.indexes().all())[0]?.state === "ready", "the index is built");
    assert.deepEqual((await queue.known({ index: "by_price", value: "3" }).all()).map(object => object.key), ["a"]);
    assert.deepEqual(await queue.indexValues("by_price").all(), [{ value: "3", keys: 1 }]);
    assert.ok((await queue.history("a").all()).length >= 3);
    await queue.update({ key: "a", price: 5 });
    assert.deepEqual((await queue.item("a", { withDiff: true }))?.diff, [{ op: "replace", path: "/price", value: 5, old: 3 }]);
    assert.equal((await queue.item("a"))?.diff, undefined);
    const [changed] = (await queue.pop({ withKnown: true, withDiff: true })).items;
    assert.deepEqual([changed?.known, changed?.diff], [{ key: "a", price: 3 }, [{ op: "replace", path: "/price", value: 5, old: 3 }]]);
    assert.equal((await queue.ack(changed!.lease.id)).stale, 0);
    await queue.deleteKey("a");
    const [deleted] = (await queue.pop({ withDiff: true })).items;
    assert.deepEqual([deleted?.known, deleted?.diff], [undefined, null]);
    await queue.ack(deleted!.lease.id);
    assert.equal((await queue.deleteKey("b")).queued, 1);
    assert.equal((await queue.purge()).keys, 1);
    assert.equal((await queue.synced()).synced, true);
});

test("leases that had ended are results, and no errors", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add({ key: "a" });
    const { items } = await queue.pop();
    const lease = items[0]!.lease.id;
    assert.equal((await queue.release([lease])).stale, 0);
    const ended = { lease_id: lease, as: "ack", result: "stale", outcome: "released", failures: null, due_at: null, parked: null };
    assert.deepEqual((await queue.ack(lease)).settled, [ended]);
    assert.equal((await queue.extend([lease])).settled[0]?.outcome, "released");
    const several = await queue.settle([{ lease_ids: [lease, "00000000-1"], as: "extend", lease_duration: "1m" }]);
    assert.deepEqual([several.settled.map(({ as, outcome }) => [as, outcome]), several.stale], [[["extend", "released"], ["extend", "unknown"]], 2]);
});

test("other calls that settle and produce", async t => {
    const server = await Server.start(t);
    const queue = server.queue();
    await queue.deltas([{ type: "Added", object: { key: "a" } }, { type: "Updated", object: '{"key":"b","n":18446744073709551615}' }]);
    assert.equal((await server.client().rawQueue("prices").latestObject("b"))?.object, '{"key":"b","n":18446744073709551615}');
    const [a, b] = (await queue.pop({ max: 2 })).items.map(item => item.lease.id) as [string, string];
    await queue.reject([a], { error: "never" });
    await queue.ack([b]);
    assert.deepEqual((await queue.items({ state: ["parked", "ready"] }).all()).map(item => [item.key, item.state]), [["a", "parked"]]);
    assert.equal((await queue.parkedErrors().all())[0]?.first_key, "a");
    assert.equal((await queue.redrive({ error: "another error" })).keys, 0);
    assert.equal((await queue.redrive(["a"])).keys, 1);
    assert.equal((await queue.resync()).queued, 1);
    await queue.seenSource("erp/eu");
    assert.equal((await queue.setStaleAfter("erp/eu", "15m")).stale_after, "15m");
    assert.equal((await queue.setStaleAfter("erp/eu", null)).stale_after, null);
    await queue.pause();
    assert.equal((await queue.pop()).paused, true);
    await queue.resume();
    await queue.close();
    assert.equal((await queue.get()).status.closed, true);
    await queue.reopen();

    const keys = server.queue("keys");
    await keys.putSettings({ mode: "keys" });
    await keys.addKey("k");
    const popped = await keys.pop();
    assert.deepEqual(popped.items[0]?.deltas, []);
    await keys.done([popped.items[0]!.lease.id], { delay: "1h" });
    assert.equal((await keys.promote(["k", "absent"])).keys, 1);
    assert.deepEqual(await keys.addKey("k").then(({ queued, merged }) => [queued, merged]), [0, 1]);
    assert.equal((await keys.addKey("f", { rateLimited: true })).keys?.[0]?.failures, 1);
    assert.equal((await keys.forget(["f"])).keys, 1);

    const copy = server.queue("copy");
    await copy.putSettings();
    await copy.seed(await queue.known().all());
    assert.deepEqual((await copy.known().all()).map(object => object.key), ["b"]);
    const names = (await server.client().queues({ limit: 1 }).all()).map(document => document.name);
    assert.deepEqual(names, ["copy", "keys", "prices"]);
    await copy.deleteQueue();
    assert.equal((await server.client().info()).name, "deltaq");
});

test("an extension waits for a newer change, and a hold has a scope", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add([{ key: "a" }, { key: "b" }]);
    const lease = (await queue.pop()).items[0]!.lease.id;
    assert.equal((await queue.extend(lease, { untilChanged: "50ms" })).settled[0]?.pending_deltas, 0);
    await queue.update({ key: "a", n: 2 });
    const extended = await queue.extend(lease, { leaseDuration: "1h", untilChanged: "30s" });
    assert.equal(extended.settled[0]?.pending_deltas, 1);
    const released = await queue.release(lease, { hold: "1h", holdScope: "key" });
    assert.notEqual(released.settled[0]?.held_until, undefined);
    assert.deepEqual((await queue.pop({ max: 9 })).items.map(item => item.key), ["b"]);
});

test("settings are replaced as a whole or changed in part, and only as the caller has seen them", async t => {
    const queue = (await Server.start(t)).queue();
    await assert.rejects(queue.patchSettings({ lease: "1m" }), { code: "queue-not-found" });
    const first = await queue.planSettings({ lease: "1m" });
    assert.deepEqual([first.current, first.etag, first.planned.lease], [null, null, "1m"]);
    const created = await queue.putSettings({ lease: "1m", max_failures: 3 }, { ifAbsent: true });
    assert.deepEqual(await queue.settings(), created);
    const plan = await queue.planSettings({ lease: "2m" });
    assert.deepEqual([plan.current, plan.etag, plan.planned.lease], [created.settings, created.etag, "2m"]);
    await assert.rejects(queue.testPush(), { code: "invalid-config" });
    const changed = await queue.patchSettings({ lease: "2m", retention: { age: "1h" } }, { ifMatch: created.etag });
    assert.deepEqual([changed.settings.lease, changed.settings.max_failures], ["2m", 3]);
    assert.notEqual(changed.etag, created.etag);
    const stale = { code: "precondition-failed", status: 412, retryable: false };
    await assert.rejects(queue.patchSettings({ lease: "3m" }, { ifMatch: created.etag }), stale);
    await assert.rejects(queue.putSettings({}, { ifAbsent: true }), stale);
    assert.equal((await queue.putSettings({ max_failures: 3 })).settings.lease, "30s");
    assert.deepEqual(await queue.putSettings((await queue.settings()).settings), await queue.settings());
});

test("followers are detached only by force", async t => {
    const server = await Server.start(t);
    const [prices, copy] = [server.queue(), server.queue("copy")];
    for (const change of [
        (force: boolean) => prices.patchSettings({ known_objects: false }, { force }),
        (force: boolean) => prices.putSettings({ known_objects: false }, { force }),
    ]) {
        await prices.putSettings();
        await copy.putSettings({ follow: { queue: "prices", view: "known" } });
        await assert.rejects(change(false), { code: "followed" });
        await change(true);
        assert.equal((await copy.settings()).settings.follow, null);
    }
});

test("a change may name the object that it expects", async t => {
    const queue = (await Server.start(t)).queue<{ key: string; n?: number }>();
    const etag = async () => (await queue.latestObject("a"))!.etag;
    await queue.add({ key: "a", n: 1 }, { ifAbsent: true });
    const first = { ifMatch: await etag() };
    await queue.update({ key: "a", n: 2 }, first);
    for (const change of [
        () => queue.add({ key: "a" }, { ifAbsent: true }),
        () => queue.update({ key: "a" }, { ifAbsent: true }),
        () => queue.add({ key: "a" }, first),
        () => queue.update({ key: "a" }, first),
        () => queue.delete({ key: "a" }, first),
        () => queue.deleteKey("a", first),
    ]) {
        await assert.rejects(change(), { code: "precondition-failed", status: 412 });
    }
    assert.equal((await queue.latestObject("a"))?.object.n, 2);
    await queue.deleteKey("a", { ifMatch: await etag() });
    await queue.add({ key: "a", n: 3 }, { ifAbsent: true });
    await queue.delete({ key: "a" }, { ifMatch: await etag() });
    assert.equal(await queue.latestObject("a"), undefined);
});

test("a call that must not create its queue", async t => {
    const queue = (await Server.start(t)).queue();
    const options = { mustExist: true };
    const calls = [
        () => queue.add({ key: "a" }, options),
        () => queue.update({ key: "a" }, options),
        () => queue.delete({ key: "a" }, options),
        () => queue.deleteKey("a", options),
        () => queue.deltas([{ type: "Added", object: { key: "a" } }], options),
        () => queue.replace([{ key: "a" }], options),
    ];
    for (const call of [...calls, () => queue.addKey("a", options)]) {
        await assert.rejects(call(), { code: "queue-not-found" });
    }
    await queue.putSettings();
    for (const call of calls) {
        await call();
    }
});

test("items are selected by their prefix, source and last error", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.putSettings({ max_failures: 1 });
    await queue.add([{ key: "a1" }, { key: "b1" }], { source: "erp" });
    await queue.add({ key: "a2" });
    const [popped] = (await queue.pop()).items;
    await queue.nack(popped!.lease.id, { error: "no price" });
    const keys = async (options: ItemsOptions) => (await queue.items(options).all()).map(({ key }) => key).sort();
    assert.deepEqual(await keys({ prefix: "a" }), ["a1", "a2"]);
    assert.deepEqual(await keys({ source: "erp" }), ["a1", "b1"]);
    assert.deepEqual(await keys({ error: "no price" }), [popped!.key]);
    assert.deepEqual(await keys({ error: "", source: "erp" }), ["b1"]);
});

test("parked keys are selected by their keys or by an error, and never by a selection that is undefined", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add(["a", "b", "c"].map(key => ({ key })));
    await queue.reject((await queue.pop({ max: 3 })).items.map(item => item.lease.id), { error: "no price" });
    // The value of a variable that a program without types has never set.
    const unset = undefined as unknown as string;
    for (const wrong of [unset, { error: unset }, { error: null }, { errors: "no price" }, { all: unset }, {}, [unset], [null], "a", null]) {
        await assert.rejects(async () => queue.discard(wrong as any), JSON.stringify(wrong));
        await assert.rejects(async () => queue.redrive(wrong as any), JSON.stringify(wrong));
    }
    assert.deepEqual((await queue.items({ state: ["parked"] }).all()).map(item => item.key), ["a", "b", "c"]);
    assert.equal((await queue.discard({ error: "another error" })).keys, 0);
    assert.equal((await queue.discard(["c"])).keys, 1);
    await assert.rejects(queue.redrive({ all: true }, { expectedCount: 3 }), error => {
        assert.deepEqual([(error as any).code, (error as any).problem.count], ["count-changed", 2]);
        return true;
    });
    assert.equal((await queue.redrive({ all: true }, { expectedCount: 2 })).keys, 2);
});

test("a Replace of a list and of a stream", async t => {
    const queue = (await Server.start(t)).queue();
    const list = Array.from({ length: 2_500 }, (_, n) => ({ key: `k${n}`, text: "x".repeat(50) }));
    assert.equal((await queue.replace(list, { source: "erp" })).replaced, 2_500);
    async function* stream() {
        yield* list;
        yield '{"key":"more"}';
    }
    const { replaced, unchanged, deleted } = await queue.replace(stream, { source: "erp", onlyChanged: true });
    assert.deepEqual([replaced, unchanged, deleted], [1, 2_500, 0]);
    await assert.rejects(queue.replace([], { source: "erp" }), { code: "mass-delete", status: 409, retryable: false });
    assert.equal((await queue.replace([], { source: "erp", allowEmpty: true, dryRun: true })).deleted, 2_501);
    let count = 0;
    for await (const _ of queue.latest({ limit: 1_000 })) {
        count += 1;
    }
    assert.equal(count, 2_501);
});

test("keys that paths can't have", async t => {
    const queue = (await Server.start(t)).queue();
    for (const key of [".", "..", "a/../b", "a//b", "ü ?#&%2F", "🙂"]) {
        const { resource_version: minResourceVersion } = await queue.add({ key });
        assert.equal((await queue.latestObject(key, { minResourceVersion }))?.key, key);
        assert.equal(await queue.knownObject(key, { minResourceVersion }), undefined);
        assert.equal((await queue.item(key))?.key, key);
    }
});

test("a key that has only failures is an item", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.putSettings({ mode: "keys" });
    await queue.close();
    await queue.addKey("..", { rateLimited: true });
    assert.equal((await queue.item(".."))?.failures, 1);
});

test("a name that a path loses is refused before anything is sent", async t => {
    const url = await web(t, () => assert.fail("a call was sent"));
    for (const name of ["", ".", "..", "a/../prices", "a//b", "/"]) {
        const queue = new Client(url).queue(name);
        for (const call of [queue.deleteQueue(), queue.status(), queue.purge(), new Client(url).queue("prices").indexValues(name).all()]) {
            await assert.rejects(call, { name: "TypeError", message: /is no name/ });
        }
        assert.throws(() => queue.watchUrl(), TypeError);
    }
});

test("a refusal is an error with the fields of its problem", async t => {
    const queue = (await Server.start(t)).queue();
    await assert.rejects(queue.add({ nokey: 1 }), error => {
        const { name, code, status, retryable, problem, message } = error as any;
        assert.deepEqual([name, code, status, retryable, problem.index], ["DeltaqError", "no-key", 422, false, 0]);
        assert.match(message, /^POST \/v1\/queues\/prices\/add: .*no-key/);
        return true;
    });
    await assert.rejects(queue.pop({ wayt: "1s" } as any), { hint: 'did you mean "wait"?', message: /; did you mean "wait"\? \(invalid-parameter\)$/ });
});

test("a refusal is repeated after Retry-After, if it is retryable", async t => {
    const times: number[] = [];
    const url = await web(t, (_, response, count) => {
        times.push(performance.now());
        if (count === 1) {
            refuse(response, { ...busy, retry_after_ms: 300 });
        } else if (count === 2) {
            refuse(response, busy, { "retry-after": "1" });
        } else {
            response.end('{"resource_version":246012345678337,"queued":1,"ignored":0}');
        }
    });
    await new Client(url, { retry: { first: "1ms" } }).queue("q").add({});
    assert.equal(times.length, 3);
    assert.ok(times[1]! - times[0]! >= 299, `${times[1]! - times[0]!}`);
    assert.ok(times[2]! - times[1]! >= 999, `${times[2]! - times[1]!}`);
});

test("attempts are bounded by their number, and by the time that the server asks to wait", async t => {
    let requests = 0;
    const url = await web(t, (request, response) => {
        requests += 1;
        refuse(response, request.url === "/v1/queues/long/status" ? { ...busy, retry_after_ms: 86_400_000 } : busy);
    });
    const client = new Client(url, { retry: { first: "1ms", attempts: 3 } });
    await assert.rejects(client.queue("q").status(), { code: "draining" });
    assert.equal(requests, 3);
    await assert.rejects(client.queue("long").status(), { retryAfterMs: 86_400_000 });
    assert.equal(requests, 4);
});

test("a call that would count twice is repeated only if it was certainly not applied", async t => {
    let requests = 0;
    const url = await web(t, (_, response) => {
        requests += 1;
        requests === 1 ? refuse(response, busy) : refuse(response, { status: 503, code: "journal-unavailable", retryable: true });
    });
    const queue = new Client(url, { retry: { first: "1ms", attempts: 5 } }).queue("q");
    await assert.rejects(queue.purge(), { code: "journal-unavailable" });
    assert.equal(requests, 2);
    await assert.rejects(queue.addKey("k", { rateLimited: true }), { code: "journal-unavailable" });
    assert.equal(requests, 3);
    await assert.rejects(queue.resync(), { code: "journal-unavailable" });
    assert.equal(requests, 4);
    await assert.rejects(queue.seed([{ object: { key: "k" } }]), { code: "journal-unavailable" });
    assert.equal(requests, 5);
    await assert.rejects(queue.deltas([{ type: "Deleted", key: "k", expected_version: 0 }]), { code: "journal-unavailable" });
    assert.equal(requests, 6);
    await assert.rejects(queue.add({ key: "k" }, { ifAbsent: true }), { code: "journal-unavailable" });
    assert.equal(requests, 7);
    await assert.rejects(queue.deleteKey("k", { ifMatch: '"1"' }), { code: "journal-unavailable" });
    assert.equal(requests, 8);
    await assert.rejects(queue.addKey("k"), { code: "journal-unavailable" });
    assert.equal(requests, 13);
});

test("a call that would count twice is repeated if there was no connection", async t => {
    const closed = createServer();
    await new Promise<void>(resolve => closed.listen(0, "127.0.0.1", resolve));
    const { port } = closed.address() as AddressInfo;
    await new Promise(resolve => closed.close(resolve));
    const lost = await web(t, (_, response) => response.destroy());
    const hosts = { [`http://127.0.0.1:${port}`]: 3, [`http://localhost:${port}`]: 3, "http://deltaq.invalid": 3, [lost]: 1 };
    for (const [url, expected] of Object.entries(hosts)) {
        let requests = 0;
        const fetch = (request: RequestInfo | URL, init?: RequestInit) => (requests++, globalThis.fetch(request, init));
        await assert.rejects(new Client(url, { fetch, replyTimeout: "5m", retry: { first: "1ms", attempts: 3 } }).queue("q").purge(), { code: "no-reply" });
        assert.equal(requests, expected, url);
    }
});

test("a pop whose reply was lost is repeated with the same id", async t => {
    const urls: string[] = [];
    const url = await web(t, (request, response, count) => {
        urls.push(request.url ?? "");
        if (count === 1) {
            response.destroy();
        } else if (count === 2) {
            response.writeHead(200, { "content-length": "50" });
            response.write('{"items":');
            response.destroy();
        } else {
            response.end('{"items":[],"settled":[]}');
        }
    });
    await new Client(url, { retry: { first: "1ms" } }).queue("q").pop();
    assert.equal(urls.length, 3);
    assert.equal(new Set(urls).size, 1);
    assert.match(urls[0]!, /id=[0-9a-f-]{36}/);
});

test("replies of other servers are errors that say so", async t => {
    const url = await web(t, (request, response) => {
        const status = { "/v1/queues/a/status": 502, "/v1/queues/b/status": 200, "/v1/queues/c/status": 308, "/v1/queues/d/status": 200 }[
            request.url ?? ""
        ] ?? 404;
        response.writeHead(status, { "content-type": "text/html", location: "https://example.org/" });
        response.end(request.url?.startsWith("/v1/queues/d") ? "[]" : "<html>");
    });
    const client = new Client(url, { retry: { attempts: 1 } });
    await assert.rejects(client.queue("a").status(), { code: "unexpected-reply", status: 502, retryable: true });
    await assert.rejects(client.queue("b").status(), { code: "unexpected-reply", status: 200, retryable: false });
    await assert.rejects(client.queue("c").status(), /redirection to https:\/\/example.org\//);
    await assert.rejects(client.queue("d").status(), /not that of a deltaq server: it is no object/);
    assert.throws(() => new Client("localhost:7070"), /must begin with http/);
});

test("a call ends with its signal and with its timeout", async t => {
    const url = await web(t, () => undefined);
    const queue = new Client(url, { replyTimeout: "50ms", retry: { attempts: 1 } }).queue("q");
    await assert.rejects(queue.status(), { name: "ConnectionError", code: "no-reply", status: 0, message: /no reply within 50 ms/ });
    const controller = new AbortController();
    const call = queue.status({ signal: controller.signal, replyTimeout: "1m" });
    controller.abort(new Error("enough"));
    await assert.rejects(call, /enough/);
    const watch = queue.watch({ signal: AbortSignal.abort(new Error("before")) });
    await assert.rejects(watch.next(), /before/);
});

test("a call that is aborted while it waits keeps the failure before", async t => {
    const url = await web(t, (_, response) => refuse(response, busy));
    const controller = new AbortController();
    const fetch: typeof globalThis.fetch = async (...request) => {
        const response = await globalThis.fetch(...request);
        setTimeout(() => controller.abort(new Error("enough")));
        return response;
    };
    const queue = new Client(url, { fetch, retry: { first: "1h", max: "1h", total: "2h" } }).queue("q");
    await assert.rejects(queue.status({ signal: controller.signal }), error => {
        assert.ok(error instanceof CallAborted);
        assert.deepEqual([error.name, error.reason, (error.cause as DeltaqError).code], ["AbortError", controller.signal.reason, "draining"]);
        return true;
    });
});

test("an item becomes JSON", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.add({ key: "a" });
    const [item] = (await queue.pop()).items;
    assert.deepEqual(JSON.parse(JSON.stringify(item)), item);
});

test("a token may be a function, which each attempt calls", async t => {
    const seen: (string | undefined)[] = [];
    const url = await web(t, (request, response, count) => {
        seen.push(request.headers.authorization);
        count === 1 ? refuse(response, busy) : response.end("{}");
    });
    let calls = 0;
    await new Client(url, { tokenSource: async () => `t${++calls}`, retry: { first: "1ms" } }).queue("q").status();
    assert.deepEqual(seen, ["Bearer t1", "Bearer t2"]);
    assert.throws(() => new Client(url, { token: "t" }).queue("q").watchUrl(), /can't send a token/);
    assert.throws(() => new Client(url, { token: "t", tokenSource: () => "t" }), /only one of/);
});

test("a call is sent once more after 401 if the token has been replaced", async t => {
    const accepted = new Set(["old"]);
    const seen: string[] = [];
    const url = await web(t, (request, response) => {
        const token = (request.headers.authorization ?? "").replace("Bearer ", "");
        seen.push(token);
        const row = '{"type":"Bookmark","resource_version":1}\n';
        accepted.has(token) ? response.end(row) : refuse(response, { status: 401, code: "unauthorized", retryable: false });
    });
    let token = "old";
    const queue = new Client(url, {
        tokenSource: () => {
            // The token is replaced after it was read for a call.
            const read = token;
            token = "new";
            return read;
        },
    }).queue("q");
    accepted.clear();
    await assert.rejects(queue.add({ key: "a" }), { code: "unauthorized", status: 401 });
    assert.deepEqual(seen.splice(0), ["old", "new"]);
    token = "old";
    accepted.add("new");
    await queue.add({ key: "a" });
    assert.deepEqual(seen.splice(0), ["old", "new"]);
    token = "old";
    assert.equal((await queue.watch({ resourceVersion: 1 }).next()).value?.type, "Bookmark");
    assert.deepEqual(seen.splice(0), ["old", "new"]);
    await assert.rejects(new Client(url, { token: "old" }).queue("q").status(), { code: "unauthorized" });
    assert.deepEqual(seen, ["old"]);
});

test("a watch has the changes of a view, and pages of it have, too", async t => {
    const queue = (await Server.start(t)).queue();
    const { resource_version } = await queue.add({ key: "a" });
    await queue.add({ key: "b" });
    const controller = new AbortController();
    const seen: unknown[] = [];
    const watching = (async () => {
        for await (const row of queue.watch({ signal: controller.signal })) {
            seen.push([row.type, row.key ?? row.initial_events_end]);
            if (row.initial_events_end) {
                await queue.deleteKey("a");
            } else if (row.type === "Deleted") {
                controller.abort(new Error("seen"));
            }
        }
    })();
    await assert.rejects(watching, /seen/);
    assert.deepEqual(seen, [["Added", "a"], ["Added", "b"], ["Bookmark", true], ["Deleted", "a"]]);
    const page = await queue.watchPage({ resourceVersion: resource_version });
    assert.deepEqual(page.items.map(row => [row.type, row.key]), [["Added", "b"], ["Deleted", "a"]]);
    const ahead = { resourceVersion: 2 ** 53 - 1 };
    await assert.rejects(queue.watch(ahead).next(), { code: "expired", status: 410 });
    await assert.rejects(queue.latestObject("a", { minResourceVersion: ahead.resourceVersion }), { code: "version-ahead", status: 409, retryable: false });
});
