/** The parts that need no server. */

import assert from "node:assert/strict";
import test from "node:test";

import { milliseconds } from "../src/duration.js";
import { Client, isDeleted, newest, Worker } from "../src/index.js";
import { ConnectionError, DeltaqError, isOutcomeUnknown, retryAfter } from "../src/error.js";
import { lines } from "../src/lines.js";
import { enclosedText, listLines, objectsText } from "../src/objects.js";
import { bounded, Done, ERROR_BYTES_MAX, Nack, suited } from "../src/outcome.js";
import { absentBackoff, Backoff, sleep } from "../src/retry.js";
import { Store } from "../src/store.js";

test("durations", () => {
    const texts = { "250ms": 250, "30s": 30_000, "1.5s": 1_500, "1m30s": 90_000, "36h": 129_600_000, "2d": 172_800_000, "500us": 0.5, "500µs": 0.5 };
    for (const [text, ms] of Object.entries(texts)) {
        assert.equal(milliseconds(text), ms);
    }
    for (const text of ["", "5", "s", "1 s", "1s2", "-1s", "1w", 5 as any, null as any]) {
        assert.throws(() => milliseconds(text), RangeError, text);
    }
});

test("pauses are random parts of a limit that doubles", () => {
    const most = new Backoff({ firstMs: 100, maxMs: 1_000 }, () => 1);
    assert.deepEqual([1, 2, 3, 4, 5, 6].map(() => most.after(undefined)), [100, 200, 400, 800, 1_000, 1_000]);
    const half = new Backoff({ firstMs: 100, maxMs: 1_000 }, () => 0.5);
    assert.equal(half.after(undefined), 50);
    half.reset();
    assert.equal(half.after(undefined), 50);
});

test("a worker asks again for a queue that does not exist after 1 s, doubling to 15 s", () => {
    const absent = absentBackoff();
    assert.deepEqual([1, 2, 3, 4, 5, 6].map(() => absent.after(undefined)), [1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
});

test("a pause is never shorter than what the server asks for", () => {
    const error = new DeltaqError("busy", { code: "queue-full", status: 429, retryable: true, retryAfterMs: 3_000 });
    assert.equal(new Backoff({ firstMs: 100, maxMs: 1_000 }, () => 0).after(error), 3_000);
    assert.equal(new Backoff({ firstMs: 100, maxMs: 1_000 }, () => 1).after(error), 3_100);
});

test("a Retry-After header has seconds or a date", () => {
    const now = Date.parse("2026-11-21T04:20:00Z");
    assert.equal(retryAfter("7", now), 7_000);
    assert.equal(retryAfter("Sat, 21 Nov 2026 04:20:30 GMT", now), 30_000);
    assert.equal(retryAfter("Sat, 21 Nov 2026 04:19:00 GMT", now), 0);
    assert.equal(retryAfter("soon", now), undefined);
    assert.equal(retryAfter(null, now), undefined);
});

test("an outcome is known if no connection was made to any address of the host", () => {
    const of = (code: string) => Object.assign(new Error(code), { code });
    const failed = (cause: unknown) => isOutcomeUnknown(new ConnectionError("POST", { cause: new TypeError("fetch failed", { cause }) }));
    assert.deepEqual([of("ECONNREFUSED"), of("ENOTFOUND"), new AggregateError([of("ECONNREFUSED"), of("ECONNREFUSED")])].map(failed), [false, false, false]);
    assert.deepEqual([of("ECONNRESET"), new AggregateError([of("ECONNREFUSED"), of("ECONNRESET")]), new AggregateError([]), undefined].map(failed), [true, true, true, true]);
});

test("a signal ends a pause", async () => {
    const controller = new AbortController();
    const pause = sleep(60_000, controller.signal);
    controller.abort(new Error("enough"));
    await assert.rejects(pause, /enough/);
    await assert.rejects(sleep(60_000, controller.signal), /enough/);
});

function stream(...chunks: Uint8Array[]): ReadableStream<Uint8Array> {
    return new ReadableStream({
        start(controller) {
            chunks.forEach(chunk => controller.enqueue(chunk));
            controller.close();
        },
    });
}

test("lines are put together of chunks, and a line that was cut off is left out", async () => {
    const bytes = new TextEncoder().encode('{"a":"é"}\n{"b":2}\n\n{"c"');
    const expected = ['{"a":"é"}', '{"b":2}', ""];
    for (let size = 1; size <= bytes.length; size += 1) {
        const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, at) => bytes.subarray(at * size, (at + 1) * size));
        const found: string[] = [];
        for await (const line of lines(stream(...chunks), 1_000)) {
            found.push(line);
        }
        assert.deepEqual(found, expected);
    }
});

test("a silent stream is given up, and closed", async () => {
    let isClosed = false;
    const silent = new ReadableStream<Uint8Array>({
        start: controller => controller.enqueue(new TextEncoder().encode("first\n")),
        cancel: () => {
            isClosed = true;
        },
    });
    const reading = lines(silent, 20);
    assert.equal((await reading.next()).value, "first");
    await assert.rejects(reading.next(), { code: "no-reply", retryable: true });
    assert.ok(isClosed);
});

test("objects become bodies", () => {
    assert.equal(objectsText({ key: "a" }, "add"), '{"key":"a"}');
    assert.equal(objectsText([{ key: "a" }, '{"key":"b","n":18446744073709551615}'], "add"), '[{"key":"a"},{"key":"b","n":18446744073709551615}]');
    assert.equal(objectsText([], "add"), "[]");
    for (const [wrong, name] of [[undefined, "undefined"], [null, "null"], [[null], "null"], ["null", "null"]] as const) {
        assert.throws(() => objectsText(wrong as any, "add"), { name: "TypeError", message: `add: ${name} is not a JSON object` });
    }
    assert.throws(() => objectsText({ price: { cents: 1n } }, "update"), /^TypeError: update: .*BigInt.*text of the object instead.*rawQueue/);
    const loop: Record<string, unknown> = {};
    loop["loop"] = loop;
    assert.throws(() => objectsText(loop, "add"), (error: Error) => /^add: .*circular/.test(error.message) && !error.message.includes("rawQueue"));
    assert.equal(
        enclosedText([{ type: "Added", object: '{"n":1e400}' } as object, { object: { a: 1 } }, { type: "Deleted", key: "a" } as object], "deltas"),
        '[{"type":"Added","object":{"n":1e400}},{"object":{"a":1}},{"type":"Deleted","key":"a"}]',
    );
    assert.equal([...listLines([{ key: "a" }, '{"key":\n"b"}'], "replace")].join(""), '{"key":"a"}\n{"key": "b"}\n{"$end":2}\n');
});

test("only the end of a long error is sent, and never more than the server takes", () => {
    for (const text of ["x".repeat(5_000), "é".repeat(3_000), `a${"😀".repeat(2_000)}b`]) {
        const { error = "" } = bounded(Nack({ error: text }));
        const bytes = new TextEncoder().encode(error).length;
        assert.ok(bytes <= ERROR_BYTES_MAX && bytes > ERROR_BYTES_MAX - 4, `${bytes}`);
        assert.ok(text.endsWith(error));
    }
    assert.equal(bounded(Nack({ error: "é".repeat(2_048) })).error?.length, 2_048);
});

test("Done outside mode keys is a failure of its key", () => {
    const item = (deltas: object[]) => ({ deltas }) as any;
    assert.deepEqual(suited(Done({ delay: "1h" }), item([])), { as: "done", delay: "1h" });
    const { as, error } = suited(Done(), item([{}]));
    assert.equal(as, "nack");
    assert.match(error ?? "", /only for queues of mode keys/);
});

test("the newest change of an item", () => {
    const item = (...types: string[]) => ({ key: "k", deltas: types.map((type, object) => ({ type, object })) }) as any;
    assert.equal(newest(item("Added", "Updated")).object, 1);
    assert.deepEqual([item("Added", "Deleted"), item("Deleted", "Added"), item()].map(isDeleted), [true, false, false]);
    assert.throws(() => newest(item()), /"k" has no deltas: its queue is of mode keys/);
});

test("undefined options have their defaults", () => {
    const queue = new Client("http://localhost:7070", { retry: { total: undefined }, token: undefined }).queue("q");
    const { options } = new Worker(queue, () => undefined, { grace: undefined, name: undefined, concurrency: undefined });
    assert.deepEqual([options.grace, options.concurrency, options.batch, typeof options.name], ["30s", 1, 1, "string"]);
    assert.equal(queue.retry.totalMs, 120_000);
});

test("the indexes of a store follow its objects", () => {
    const store = new Store<{ tags: string[] }>({ byTag: object => object.tags });
    store.set("a", { object: { tags: ["x", "y"] }, resource_version: 1 });
    store.set("b", { object: { tags: ["y"] }, resource_version: 2 });
    assert.deepEqual(store.indexKeys("byTag", "y"), ["a", "b"]);
    assert.deepEqual(store.byIndex("byTag", "x"), [{ tags: ["x", "y"] }]);
    store.set("a", { object: { tags: ["z"] }, resource_version: 3 });
    assert.deepEqual(store.indexKeys("byTag", "x"), []);
    assert.deepEqual(store.indexValues("byTag").sort(), ["y", "z"]);
    store.delete("b");
    assert.deepEqual(store.indexValues("byTag"), ["z"]);
    assert.deepEqual(store.keys(), ["a"]);
    assert.throws(() => store.indexKeys("byColour", "red"), /no index "byColour".*byTag/);
});

test("a store keeps the former object if an index function throws", () => {
    const store = new Store<{ city?: { name: string } }>({ byCity: object => [object.city!.name] });
    store.set("a", { object: { city: { name: "Rome" } }, resource_version: 1 });
    assert.throws(() => store.set("a", { object: {}, resource_version: 2 }), /the function of the index "byCity" has failed for the key "a": .*name/);
    assert.deepEqual(store.indexKeys("byCity", "Rome"), ["a"]);
});
