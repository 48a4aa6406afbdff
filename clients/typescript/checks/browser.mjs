/**
 * A page of another origin in a headless Chromium imports the module as it is, and runs a producer, a worker and an informer for each transport.
 * Usage: DELTAQ_BIN=... node checks/browser.mjs
 */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

import { startServer } from "./server.mjs";

const PATIENCE_MS = 60_000;

const here = dirname(dirname(fileURLToPath(import.meta.url)));

/** The script of the page. It reports what it has seen, or its error. */
const script = (url, transport) => `
import { Client, Informer, waitForCacheSync, Worker } from "/dist/index.js";

const queue = new Client(${JSON.stringify(url)}).queue("${transport}");
const stop = new AbortController();
const seen = [];
try {
    await queue.add([{ key: "a", n: 1 }, { key: "b", n: 2 }]);
    const informer = new Informer(queue, { transport: "${transport}", indexes: { parity: ({ n }) => [n % 2 ? "odd" : "even"] } });
    let all = () => {};
    const complete = new Promise(resolve => (all = resolve));
    const handler = informer.addHandler({
        onAdd: ({ key }, isInInitialList) => seen.push("add " + key + " " + isInInitialList),
        onUpdate: (old, { key, n }) => seen.push("update " + key + " " + old.n + " " + n),
        onDelete: (_, key) => { seen.push("delete " + key); all(); },
    });
    const running = informer.run({ signal: stop.signal });
    await waitForCacheSync([informer, handler]);
    await queue.update({ key: "a", n: 3 });
    await queue.deleteKey("b");
    await complete;
    seen.push("odd " + informer.store.indexKeys("parity", "odd"));
    const keys = [];
    const worker = new Worker(queue, (item, { token }) => {
        keys.push(item.key + " " + typeof token);
        if (keys.length === 2) stop.abort();
    });
    await worker.run({ signal: stop.signal });
    await running;
    seen.push(...keys);
} catch (error) {
    seen.push(String(error.stack));
}
await fetch("/report", { method: "POST", body: JSON.stringify(seen) });
`;

const EXPECTED = ["add a true", "add b true", "update a 1 3", "delete b", "odd a", "a number", "b number"];

/** Opens a page in a new browser, and returns what the page reports. */
async function open(url, reported) {
    const profile = mkdtempSync(join(tmpdir(), "deltaq-browser-"));
    const options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", `--user-data-dir=${profile}`];
    const browser = spawn("chromium", [...options, url], { stdio: "ignore", detached: true });
    const closed = new Promise(resolve => browser.once("close", resolve));
    let timer;
    try {
        return await Promise.race([
            reported,
            new Promise((_, reject) => {
                browser.once("error", reject);
                timer = setTimeout(() => reject(new Error(`the page ${url} has reported nothing`)), PATIENCE_MS);
            }),
        ]);
    } finally {
        clearTimeout(timer);
        if (browser.pid !== undefined) {
            // The browser has processes of its own, in its group.
            process.kill(-browser.pid, "SIGKILL");
            await closed;
        }
        rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
    }
}

let reported = () => {};
let deltaq;
const site = createServer((request, response) => {
    const { pathname } = new URL(request.url, "http://page");
    if (pathname === "/report") {
        let text = "";
        request.on("data", data => (text += data)).on("end", () => reported(JSON.parse(text)));
        response.end();
    } else if (pathname.startsWith("/dist/")) {
        response.writeHead(200, { "content-type": "text/javascript" }).end(readFileSync(join(here, normalize(pathname))));
    } else if (pathname === "/fetch" || pathname === "/eventsource") {
        const page = `<!doctype html><meta charset="utf-8"><script type="module">${script(deltaq.url, pathname.slice(1))}</script>`;
        response.writeHead(200, { "content-type": "text/html" }).end(page);
    } else {
        response.writeHead(404).end();
    }
});
await new Promise(resolve => site.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${site.address().port}`;
deltaq = await startServer({ DELTAQ_SERVER__ALLOWED_ORIGINS: origin });
try {
    for (const transport of ["fetch", "eventsource"]) {
        const seen = await open(`${origin}/${transport}`, new Promise(resolve => (reported = resolve)));
        if (JSON.stringify(seen) !== JSON.stringify(EXPECTED)) {
            throw new Error(`the page with ${transport} has seen:\n${seen.join("\n")}\ninstead of:\n${EXPECTED.join("\n")}`);
        }
    }
    console.log("a page in Chromium has run informers by fetch and by EventSource, and a worker");
} finally {
    await deltaq.stop();
    site.closeAllConnections();
    site.close();
}
