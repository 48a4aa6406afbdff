/** What is refused when an object is made, and what the types refuse. */

import assert from "node:assert/strict";
import test from "node:test";

import {
    type AddOptions,
    type CallOptions,
    Client,
    type ClientOptions,
    type DeltaCall,
    Informer,
    type InformerOptions,
    type ListOptions,
    type Outcome,
    type PopOptions,
    type ResourceEventHandler,
    type RetryChanges,
    type SettingsInput,
    type WatchOptions,
    Worker,
    type WorkerOptions,
} from "../src/index.js";

const queue = new Client("http://localhost:7070").queue<{ city: string }>("q");

/** A function, and what its error says. */
type Wrong = [() => unknown, RegExp];

function refuseAll(wrong: Wrong[]): void {
    for (const [make, message] of wrong) {
        assert.throws(make, { message });
    }
}

test("a client refuses a wrong URL, token and duration, and the name of a queue that is missing", () => {
    const client = (options: object) => () => new Client("http://localhost:7070", options);
    refuseAll([
        [() => new Client(undefined as any), /the URL of a client is undefined; it must be a text, such as "http:/],
        [() => new Client(new URL("http://localhost:7070") as any), /it must be a text/],
        [() => new Client("http://localhost").queue(undefined as any), /the name of a queue is undefined; it must be a text/],
        [() => new Client("http://localhost").rawQueue(null as any), /the name of a queue is null/],
        [client({ token: "Bearer abc" }), /give it without "Bearer"/],
        [client({ token: null }), /the token is null/],
        [client({ token: 5 }), /the token is number/],
        [client({ tokenSource: "abc" }), /tokenSource is string; it must be a function/],
        [client({ replyTimeout: 5 }), /replyTimeout: 5 is not a duration/],
        [client({ retry: { total: "soon" } }), /retry.total: "soon" is not a duration/],
        [client({ retry: { attempts: 0 } }), /retry.attempts is 0; it must be a whole number/],
    ]);
});

test("a token source that adds Bearer is refused", async () => {
    const client = new Client("http://localhost:7070", { tokenSource: () => "Bearer abc" });
    await assert.rejects(client.info(), /without "Bearer"/);
});

test("a worker refuses another kind of queue, and wrong options", () => {
    const worker = (options: object) => () => new Worker(queue, () => undefined, options);
    refuseAll([
        [() => new Worker(undefined as any, () => undefined), /the queue of a worker is undefined; it must be a Queue/],
        [() => new Worker("prices" as any, () => undefined), /the queue of a worker is string/],
        [() => new Worker(new Client("http://localhost") as any, () => undefined), /the queue of a worker is object/],
        [worker({ concurrency: "4" }), /concurrency is 4; it must be a whole number/],
        [worker({ leaseDuration: 30 }), /leaseDuration: 30 is not a duration; write a text/],
        [worker({ grace: "soon" }), /grace: "soon" is not a duration/],
        [worker({ wait: "" }), /wait: "" is not a duration/],
        [worker({ onError: console }), /onError is object; it must be a function/],
    ]);
});

test("an informer refuses another kind of queue, and wrong options and handlers", () => {
    const informer = (options: object) => () => new Informer(queue, options);
    refuseAll([
        [() => new Informer(undefined as any), /the queue of an informer is undefined; it must be a Queue/],
        [() => new Informer(new Client("http://localhost") as any), /the queue of an informer is object/],
        [informer({ resync: 5 }), /resync: 5 is not a duration/],
        [informer({ bookmark: "soon" }), /bookmark: "soon" is not a duration/],
        [informer({ indexes: { byCity: "city" } }), /byCity of indexes is string; it must be a function/],
        [() => new Informer(queue).addHandler(undefined as any), /the handler is undefined; it must be an object with onAdd/],
        [() => new Informer(queue).addHandler({ onAdd: "log" } as any), /onAdd of handler is string/],
        [() => new Informer(queue).addHandler({}, { resync: "often" }), /resync: "often" is not a duration/],
    ]);
});

test("calls refuse null and a BigInt before they are sent", async () => {
    const { add, update, delete: remove } = queue;
    for (const [name, call] of Object.entries({ add, update, delete: remove })) {
        assert.throws(() => call.call(queue, null as any), { message: `${name}: null is not a JSON object` });
        assert.throws(() => call.call(queue, { n: 1n } as any), /rawQueue/);
    }
    assert.throws(() => queue.replace([{ n: 1n } as any]), /^TypeError: replace: .*rawQueue/);
    assert.throws(() => queue.deltas([{ type: "Added", object: { n: 1n } as any }]), /^TypeError: deltas: .*rawQueue/);
});

/** Each member of options may be undefined, as in a program that passes on its own options. The compiler checks it. */
type WithUndefined<Options> = { [Name in keyof Options]: Options[Name] | undefined };
type Accepts<Options> = WithUndefined<Options> extends Options ? true : never;

test("the types take undefined for each option, and refuse a handler of deletions that forgets unknown states", () => {
    const accepts: true[] = [
        true satisfies Accepts<AddOptions>,
        true satisfies Accepts<CallOptions>,
        true satisfies Accepts<ClientOptions>,
        true satisfies Accepts<Omit<DeltaCall<unknown>, "type">>,
        true satisfies Accepts<InformerOptions<unknown>>,
        true satisfies Accepts<ListOptions>,
        true satisfies Accepts<Omit<Outcome, "as">>,
        true satisfies Accepts<PopOptions>,
        true satisfies Accepts<RetryChanges>,
        true satisfies Accepts<SettingsInput>,
        true satisfies Accepts<WatchOptions>,
        true satisfies Accepts<WorkerOptions>,
    ];
    assert.equal(accepts.length, 12);
    // @ts-expect-error: the object may be a DeletedFinalStateUnknown, which has no city.
    const handler: ResourceEventHandler<{ city: string }> = { onDelete: (object: { city: string }) => object.city };
    assert.ok(handler);
});
