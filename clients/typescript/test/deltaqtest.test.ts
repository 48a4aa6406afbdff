/** The server for tests. */

import assert from "node:assert/strict";
import test from "node:test";

import { Server } from "../src/deltaqtest.js";

test("a server starts in memory, and stops", async () => {
    const server = await Server.start({ settings: { "server.max_wait": "7s" } });
    try {
        const queue = server.client().queue("q");
        await queue.add({ key: "a" });
        assert.equal((await queue.pop()).items.length, 1);
        await assert.rejects(queue.pop({ wait: "8s" }), { code: "invalid-parameter" });
    } finally {
        await server.stop();
    }
    await server.stop();
    await assert.rejects(server.client().queue("q").get({ retry: { attempts: 1 } }), { code: "no-reply" });
});

test("a server that is killed is stopped", async () => {
    const server = await Server.start();
    await server.kill();
    await server.stop();
});

test("a server that does not start says why", async () => {
    await assert.rejects(Server.start({ settings: { "server.max_wait": "soon" } }), /did not start: .*\n[^]*max_wait/);
    await assert.rejects(Server.start({ binary: "/nowhere/deltaq" }), /did not start: .*ENOENT/);
});
