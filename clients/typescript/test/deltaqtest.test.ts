/** The server for tests. */

import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { type TestContext } from "node:test";

import { Server } from "../src/deltaqtest.js";
import { until } from "./server.js";

const program = process.env["DELTAQ_BIN"] as string;
/** From the folder of the compiled test, which is under target/. */
const shim = new URL("../../../../packages/npm/bin/deltaq.js", import.meta.url);

/** The working directory of a project, without `DELTAQ_BIN` and without a `PATH`. The test ends that. */
function project(t: TestContext): string {
    const folder = realpathSync(mkdtempSync(join(tmpdir(), "deltaqtest-project-")));
    const [before, { DELTAQ_BIN, PATH }] = [process.cwd(), process.env];
    process.chdir(folder);
    delete process.env["DELTAQ_BIN"];
    process.env["PATH"] = dirname(process.execPath);
    t.after(() => {
        process.chdir(before);
        Object.assign(process.env, { DELTAQ_BIN, PATH });
        rmSync(folder, { recursive: true });
    });
    return folder;
}

/** Installs the program, as package managers do: for all, or only for the package `deltaq-server`. */
function install(folder: string, isNested: boolean): void {
    const modules = join(folder, "node_modules");
    const server = join(modules, "deltaq-server");
    const platform = join(isNested ? join(server, "node_modules") : modules, `@deltaq/${process.platform}-${process.arch}`);
    for (const made of [join(server, "bin"), platform, join(modules, ".bin")]) {
        mkdirSync(made, { recursive: true });
    }
    symlinkSync(program, join(platform, "deltaq"));
    copyFileSync(shim, join(server, "bin/deltaq.js"));
    writeFileSync(join(server, "package.json"), "{}");
    symlinkSync("../deltaq-server/bin/deltaq.js", join(modules, ".bin/deltaq"));
}

/** Whether the server does not answer. */
async function isGone(server: Server): Promise<boolean> {
    return fetch(`${server.url}/livez`).then(() => false, () => true);
}

for (const isNested of [false, true]) {
    test(`the program of an installed package is found, and killed (${isNested ? "nested" : "flat"})`, async t => {
        const folder = project(t);
        await assert.rejects(Server.start(), /npm install --save-dev deltaq-server.*DELTAQ_BIN/);
        install(folder, isNested);
        const script = join(folder, "node_modules/.bin/deltaq");
        // The script of the package, the package of the working directory, and the script in the PATH of another directory.
        const starts = [
            () => Server.start({ binary: script }),
            () => Server.start(),
            () => {
                process.chdir(tmpdir());
                process.env["PATH"] = dirname(script);
                return Server.start();
            },
        ];
        for (const start of starts) {
            const server = await start();
            await server.kill();
            assert.ok(await isGone(server));
        }
        process.env["DELTAQ_BIN"] = "/nowhere/deltaq";
        process.chdir(folder);
        await assert.rejects(Server.start(), /nowhere/);
    });
}

test("the kill of a script whose program goes on returns", async t => {
    const folder = project(t);
    const script = join(folder, "script");
    const pid = join(folder, "pid");
    writeFileSync(script, `#!/bin/sh\n"${program}" "$@" &\necho $! > "${pid}"\nwait\n`, { mode: 0o755 });
    const server = await Server.start({ binary: script });
    await until(() => existsSync(pid), "the script has written the pid");
    const left = Number(readFileSync(pid, "utf8"));
    t.after(() => process.kill(left, "SIGKILL"));
    await server.kill();
});

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
