/** Functions around calls and handlers, against a server. */

import assert from "node:assert/strict";
import test from "node:test";

import { Ack, DeltaqError, type Invoke, type Middleware, Nack, type Work, Worker } from "../src/index.js";
import { Server } from "./server.js";

test("the first middleware of a client is the outermost", async t => {
    const server = await Server.start(t);
    const seen: string[] = [];
    const noted = (name: string): Middleware<Invoke> => next => call => {
        seen.push(`${name} ${call.method} '${call.queue}' '${call.name}'`);
        return next(call);
    };
    const client = server.client({ middleware: [noted("outer"), noted("inner")] });
    await client.queue("a.b").add({ key: "k" });
    await client.queue("a.b").get();
    await client.queue("a.b").parkedErrors().all();
    await client.queue("a.b").renumberSource("add", 3).catch(() => undefined);
    await client.queue("a.b").indexValues("delete").all().catch(() => undefined);
    await client.queues().all();
    await client.info();
    assert.deepEqual(seen.slice(0, 2), ["outer POST 'a.b' 'add'", "inner POST 'a.b' 'add'"]);
    const outer = seen.slice(2).filter(line => line.startsWith("outer"));
    // A source and an index with the names of calls.
    const named = ["outer PATCH 'a.b' 'sources'", "outer GET 'a.b' 'indexes'"];
    assert.deepEqual(outer, ["outer GET 'a.b' ''", "outer GET 'a.b' 'errors'", ...named, "outer GET '' 'queues'", "outer GET '' 'info'"]);
});

test("a middleware adds headers, and sees errors", async t => {
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const codes: string[] = [];
    const traced: Middleware<Invoke> = next => async call => {
        try {
            return await next({ ...call, headers: { ...call.headers, traceparent } });
        } catch (error) {
            codes.push((error as DeltaqError).code);
            throw error;
        }
    };
    const queue = (await Server.start(t)).client({ middleware: [traced] }).queue<any>("q");
    await queue.add({ key: "k" });
    assert.equal((await queue.pop()).items[0]?.deltas[0]?.traceparent, traceparent);
    await assert.rejects(queue.add({}), DeltaqError);
    assert.deepEqual(codes, ["no-key"]);
});

test("a middleware of a worker sees what its handler returns and throws", async t => {
    const queue = (await Server.start(t)).queue();
    const seen: string[] = [];
    const noted: Middleware<Work> = next => async deliveries => {
        const [{ item, context }] = deliveries as [any];
        try {
            const outcomes = await next(deliveries);
            seen.push(`${context.queue} ${item.key} ${outcomes[0]?.as}`);
            return outcomes;
        } catch (error) {
            seen.push(`${context.queue} ${item.key} ${(error as Error).message}`);
            return [Nack({ error: "as seen", delay: "1h" })];
        }
    };
    const work = ({ key }: { key: string }) => {
        if (key === "bad") {
            throw new Error("no price");
        }
    };
    await queue.add([{ key: "bad" }, { key: "good" }]);
    await queue.close({ atOnce: true });
    await new Worker(queue, work, { middleware: [noted] }).run();
    assert.deepEqual(seen, ["prices bad no price", "prices good ack"]);
    assert.equal((await queue.item("bad"))?.last_error, "as seen");
});

test("a middleware that returns no outcomes fails its key", async t => {
    const queue = (await Server.start(t)).queue();
    await queue.putSettings({ max_failures: 1 });
    await queue.add([{ key: "a" }, { key: "b" }]);
    await queue.close();
    await new Worker(queue, () => Ack(), { middleware: [next => async deliveries => (await next(deliveries), undefined as any)] }).run();
    assert.match((await queue.item("a"))?.last_error ?? "", /undefined outcomes for 1 keys/);
    assert.equal((await queue.status()).parked, 2);
});
