/** Clients with the URLs of several servers. */

import assert from "node:assert/strict";
import { type AddressInfo, createServer } from "node:net";
import test, { type TestContext } from "node:test";

import { Client } from "../src/index.js";
import { Servers } from "../src/servers.js";
import { refuse, web } from "./server.js";

/** A server that answers, and the paths of its calls. */
async function good(t: TestContext): Promise<{ url: string; paths: string[] }> {
    const paths: string[] = [];
    const url = await web(t, (request, response) => {
        if (request.url !== "/livez") {
            paths.push(request.url ?? "");
        } else {
            assert.equal(request.headers.authorization, undefined, "the question has no token");
        }
        response.end(`{"keys":0}`);
    });
    return { url, paths };
}

/** A URL at which nothing listens. */
async function nobody(): Promise<string> {
    const server = createServer();
    await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    await new Promise(resolve => server.close(resolve));
    return `http://127.0.0.1:${port}`;
}

test("equal URLs are one server, and others are refused without their password", () => {
    assert.equal(new Servers("http://[::1]:7070/,http://[::1]:7070, http://[0:0::1]:7070//").count, 1);
    assert.equal(new Servers("http://a,https://a,http://a/deltaq,http://a:81").count, 4);
    for (const wrong of ["http://a,", ",http://a", "http://a,,http://b", "http://a,b:2", "http://a,http://user:secret@b", "http://a?b", "http://a#b"]) {
        assert.throws(() => new Client(wrong), error => error instanceof TypeError && !error.message.includes("secret"), wrong);
    }
});

test("a failure leads to the next server, and only an owner of the list is called directly", () => {
    const servers = new Servers("http://a:1,http://b:2,https://c/deltaq");
    const [q, r] = [["v1", "queues", "q"], ["v1", "queues", "r"]] as const;
    servers.leave("http://b:2", r);
    assert.equal(servers.next(r), "http://a:1", "another call has failed elsewhere");
    servers.leave("http://a:1", r);
    servers.leave("http://a:1", q);
    assert.equal(servers.next(["v1", "info"]), "http://b:2");
    servers.answered("http://b:2", q, 200, "https://C:443/deltaq/");
    assert.deepEqual([servers.next(q), servers.next(r)], ["https://c/deltaq", "http://b:2"]);
    for (const other of ["http://d:4", "https://c", "http://c/deltaq", "c", ""]) {
        servers.answered("http://b:2", r, 200, other);
        assert.equal(servers.next(r), "http://b:2", other);
    }
    servers.answered("https://c/deltaq", q, 503, null);
    assert.equal(servers.next(q), "http://b:2");
});

test("a call that is not safe to repeat goes on at the next server if nothing was done", async t => {
    const { url, paths } = await good(t);
    const draining = await web(t, (request, response) => (request.url === "/livez" ? response.end() : refuse(response, { status: 503, code: "draining", retryable: true })));
    const strict = await web(t, (request, response) => (request.url === "/livez" ? response.end() : refuse(response, { status: 401, code: "unauthorized", retryable: false })));
    const other = await web(t, (_, response) => {
        response.writeHead(404, { "content-type": "text/html" });
        response.end("<html>");
    });
    const moving = await web(t, (request, response) => (request.url === "/livez" ? response.end() : refuse(response, { status: 503, code: "not-owner", retryable: true })));
    const away = await nobody();
    for (const undone of [away, draining, strict, other, `${away},${strict},${other},${draining}`]) {
        const queue = new Client(`${undone},${url}`, { token: "secret", retry: { attempts: 1 } }).queue("q");
        await queue.purge();
        assert.equal(paths.splice(0).length, 1, undone);
    }
    await assert.rejects(new Client(`${strict},${strict}/other`).info(), { status: 401 });
    const queue = new Client(`${moving},${url}`).queue("q");
    await assert.rejects(queue.purge(), { code: "not-owner" });
    assert.deepEqual(paths, []);
    await queue.purge();
    await assert.rejects(new Client(`${away},${await nobody()}`, { retry: { attempts: 1 } }).info(), { code: "no-reply" });
});

test("a server is refused between the question and the call", async t => {
    const { url, paths } = await good(t);
    const away = await nobody();
    // The first server answers the question and is away then.
    const fetch: typeof globalThis.fetch = (request, init) =>
        (request as Request).url === `${away}/livez` ? Promise.resolve(new Response()) : globalThis.fetch(request, init);
    await new Client(`${away},${url}`, { fetch, retry: { attempts: 1 } }).queue("q").purge();
    assert.equal(paths.length, 1);
});

test("a server that passes nothing is left, before a call and while a call or a watch waits", async t => {
    const { url, paths } = await good(t);
    let isSilent = true;
    const silent = await web(t, (request, response) => {
        if (isSilent) {
            return;
        }
        if (request.url === "/livez") {
            response.end();
            return;
        }
        isSilent = true;
        if (request.url?.includes("/watch")) {
            response.write(`{"type":"Bookmark","resource_version":1}\n`);
        }
    });
    // Before the call: nothing is sent, so even this call goes on.
    await new Client(`${silent},${url}`, { retry: { attempts: 1 } }).queue("q").purge();
    assert.equal(paths.splice(0).length, 1);
    // While the call waits: it may have been applied.
    isSilent = false;
    const waiting = new Client(`${silent},${url}`, { replyTimeout: "600s" }).queue("q");
    await assert.rejects(waiting.purge(), { name: "ConnectionError", message: /nothing comes from/ });
    assert.deepEqual(paths, []);
    await waiting.purge();
    assert.equal(paths.splice(0).length, 1);
    isSilent = false;
    const rows = new Client(`${silent},${url}`).queue("q").watch({ bookmark: "10m" });
    assert.equal((await rows.next()).value?.resource_version, 1);
    await assert.rejects(rows.next(), { name: "ConnectionError", message: /nothing comes from/ });
});

test("a server that is alive is waited for", async t => {
    const { url, paths } = await good(t);
    let questions = 0;
    const slow = await web(t, async (request, response) => {
        if (request.url === "/livez") {
            questions += 1;
            response.end();
            return;
        }
        // The question before the call, and one while it waits.
        while (questions < 2) {
            await new Promise(resolve => setTimeout(resolve, 20));
        }
        response.end(`{"keys":0}`);
    });
    await new Client(`${slow},${url}`, { replyTimeout: "600s" }).queue("q").purge();
    assert.deepEqual([questions, paths], [2, []]);
});
