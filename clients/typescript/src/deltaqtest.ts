/** Starts a real deltaq server for tests, in Node: in memory, on a free port of 127.0.0.1. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

import { Client } from "./client.js";
import { type Duration, milliseconds } from "./duration.js";
import { sleep } from "./retry.js";

/** Settings of a server for tests: its end does not wait for the keys that a test has leased. */
const SETTINGS = { "server.shutdown_timeout": "200ms" };
/** How often a server that starts is looked at, in milliseconds. */
const POLL_MS = 10;

export interface ServerOptions {
    /** The program. Default: the variable `DELTAQ_BIN` or, without it, `deltaq` in the `PATH`. */
    binary?: string;
    /** A folder for the data of the server. Default: in memory. */
    dataDir?: string;
    /** The address. Default: a free port of 127.0.0.1. */
    listen?: string;
    /** Settings of the server by their names in its configuration, such as `server.max_wait`. */
    settings?: Readonly<Record<string, string>>;
    /** How long the server may take until it takes calls. Default 30s. */
    ready?: Duration;
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
        const child = spawn(binary, ["serve", ...options], { stdio: ["ignore", "pipe", "pipe"], env: environment(settings) });
        const log = { text: "" };
        for (const output of [child.stdout, child.stderr]) {
            output.on("data", data => (log.text += data));
        }
        let status: number | string | undefined;
        const ended = new Promise<number | string>(resolve => {
            child.once("error", error => resolve(error.message));
            child.once("close", (code, signal) => resolve(code ?? signal ?? ""));
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

/** The program: `DELTAQ_BIN` or, without it, `deltaq` in the `PATH`. */
function find(): string {
    const { DELTAQ_BIN, PATH = "" } = process.env;
    const binary = DELTAQ_BIN ?? PATH.split(delimiter).map(folder => join(folder, "deltaq")).find(existsSync);
    if (binary === undefined) {
        throw new Error("there is no deltaq program: set DELTAQ_BIN, or put deltaq into the PATH");
    }
    return binary;
}

/** The environment of this process without the settings of other servers, and with these. */
function environment(settings: Readonly<Record<string, string>>): Record<string, string | undefined> {
    const others = Object.entries(process.env).filter(([name]) => !name.startsWith("DELTAQ_"));
    const own = Object.entries({ ...SETTINGS, ...settings }).map(([name, value]) => [`DELTAQ_${name.toUpperCase().replaceAll(".", "__")}`, value]);
    return Object.fromEntries([...others, ...own]);
}
