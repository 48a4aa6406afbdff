/** Starts a real deltaq server for tests, in Node: in memory, on a free port of 127.0.0.1. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

import { Client } from "./client.js";
import { type Duration, milliseconds } from "./duration.js";
import { sleep } from "./retry.js";

/** Settings of a server for tests: its end does not wait for the keys that a test has leased. */
const SETTINGS = { "server.shutdown_timeout": "200ms" };
/** How often a server that starts is looked at, in milliseconds. */
const POLL_MS = 10;
/** How long the rest of the output of a server that has ended may take, in milliseconds. A process that it has left behind may hold its pipes. */
const OUTPUT_MS = 500;

export interface ServerOptions {
    /**
     * The program. Default: the variable `DELTAQ_BIN`; without it, the program of the package `deltaq-server` that is installed for the working directory;
     * without that, `deltaq` in the `PATH`.
     */
    binary?: string | undefined;
    /** A folder for the data of the server. Default: in memory. */
    dataDir?: string | undefined;
    /** The address. Default: a free port of 127.0.0.1. */
    listen?: string | undefined;
    /** Settings of the server by their names in its configuration, such as `server.max_wait`. */
    settings?: Readonly<Record<string, string>> | undefined;
    /** How long the server may take until it takes calls. Default 30s. */
    ready?: Duration | undefined;
}

/** A running server. */
export class Server {
    /** The URL for a `Client`. */
    readonly url: string;
    readonly #process: ChildProcess;
    readonly #ended: Promise<number | string>;
    readonly #folder: string;
    readonly #log: { text: string };

    private constructor(url: string, child: ChildProcess, ended: Promise<number | string>, folder: string, log: { text: string }) {
        this.url = url;
        this.#process = child;
        this.#ended = ended;
        this.#folder = folder;
        this.#log = log;
    }

    /** Starts a server, and waits until it takes calls. */
    static async start({ binary = find(), dataDir, listen = "127.0.0.1:0", settings = {}, ready = "30s" }: ServerOptions = {}): Promise<Server> {
        const folder = mkdtempSync(join(tmpdir(), "deltaqtest-"));
        const file = join(folder, "ready");
        const store = dataDir === undefined ? ["--in-memory"] : ["--data-dir", dataDir];
        const options = ["--listen", listen, "--metrics-listen", "", "--ready-file", file, "--log-level", "warn", ...store];
        const child = spawn(direct(binary), ["serve", ...options], { stdio: ["ignore", "pipe", "pipe"], env: environment(settings) });
        const log = { text: "" };
        for (const output of [child.stdout, child.stderr]) {
            output.on("data", data => (log.text += data));
        }
        let status: number | string | undefined;
        const exited = new Promise<number | string>(resolve => {
            child.once("error", error => resolve(error.message));
            child.once("exit", (code, signal) => resolve(code ?? signal ?? ""));
        });
        const ended = exited.then(async how => {
            await closed(child);
            return how;
        });
        void ended.then(how => (status = how));
        const end = performance.now() + milliseconds(ready);
        // The file appears with its whole text.
        while (!existsSync(file)) {
            if (status !== undefined || performance.now() > end) {
                const what = status === undefined ? "is not ready" : `did not start: ${status}`;
                child.kill("SIGKILL");
                await ended;
                rmSync(folder, { recursive: true });
                throw new Error(`the deltaq server ${what}\n${log.text}`);
            }
            await sleep(POLL_MS);
        }
        return new Server(`http://${JSON.parse(readFileSync(file, "utf8")).api}`, child, ended, folder, log);
    }

    /** A new client of the server. */
    client(): Client {
        return new Client(this.url);
    }

    /** What the server has written so far: warnings and errors. */
    log(): string {
        return this.#log.text;
    }

    /** Ends the server gracefully, as a deployment does, and waits for its end. After `kill`, it does nothing. */
    async stop(): Promise<void> {
        if (!existsSync(this.#folder)) {
            return;
        }
        this.#process.kill("SIGTERM");
        const status = await this.#ended;
        rmSync(this.#folder, { recursive: true, force: true });
        if (status !== 0) {
            throw new Error(`the deltaq server has ended with ${status}\n${this.log()}`);
        }
    }

    /** Ends the server at once, as a crash does, and waits for its end. */
    async kill(): Promise<void> {
        this.#process.kill("SIGKILL");
        await this.#ended;
        rmSync(this.#folder, { recursive: true, force: true });
    }
}

/** Waits until the output of a process that has ended is complete, and closes it. */
async function closed(child: ChildProcess): Promise<void> {
    const outputs = [child.stdout, child.stderr].filter(output => output !== null);
    const patience = new AbortController();
    const complete = outputs.map(output => new Promise<void>(resolve => (output.closed ? resolve() : output.once("close", resolve))));
    await Promise.race([Promise.all(complete), sleep(OUTPUT_MS, patience.signal).catch(() => undefined)]);
    patience.abort();
    outputs.forEach(output => output.destroy());
}

/** The program: that of `DELTAQ_BIN`, of the package for the working directory, or of the `PATH`. */
function find(): string {
    const { DELTAQ_BIN, PATH = "" } = process.env;
    const binary = DELTAQ_BIN ?? packaged(join(process.cwd(), "x")) ?? PATH.split(delimiter).map(folder => join(folder, "deltaq")).find(existsSync);
    if (binary === undefined) {
        throw new Error(
            `there is no deltaq program: run "npm install --save-dev deltaq-server" in ${process.cwd()}, set DELTAQ_BIN to the program, or put deltaq into the PATH`,
        );
    }
    return binary;
}

/** The program of the package for this platform, as a module in this file sees it. */
function packaged(file: string): string | undefined {
    const program = `@deltaq/${process.platform}-${process.arch}/deltaq`;
    const { resolve } = createRequire(file);
    // Some package managers install the package for a platform only for the package that needs it.
    const ways = [() => resolve(program), () => createRequire(resolve("deltaq-server/package.json")).resolve(program)];
    for (const way of ways) {
        try {
            return way();
        } catch {
            // This way is not there.
        }
    }
    return undefined;
}

/** The program itself, if the path is that of the script of `deltaq-server`: in older Node, that script starts the program, and a KILL ends only the script. */
function direct(binary: string): string {
    const file = existsSync(binary) ? realpathSync(binary) : binary;
    return (file.endsWith(".js") ? packaged(file) : undefined) ?? binary;
}

/** The environment of this process without the settings of other servers, and with these. */
function environment(settings: Readonly<Record<string, string>>): Record<string, string | undefined> {
    const others = Object.entries(process.env).filter(([name]) => !name.startsWith("DELTAQ_"));
    const own = Object.entries({ ...SETTINGS, ...settings }).map(([name, value]) => [`DELTAQ_${name.toUpperCase().replaceAll(".", "__")}`, value]);
    return Object.fromEntries([...others, ...own]);
}
