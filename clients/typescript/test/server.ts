/** A deltaq server for a test. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";

import { Client, type ClientOptions, type Problem, type Queue } from "../src/index.js";
import { sleep } from "../src/retry.js";

/** The longest time that a test waits for something. */
const PATIENCE_MS = 30_000;

export class Server {
    readonly #binary: string;
    readonly #folder: string;
    readonly #settings: Record<string, string>;
    #process: ChildProcess | undefined;
    port = 0;

    private constructor(binary: string, folder: string, settings: Record<string, string>) {
        this.#binary = binary;
        this.#folder = folder;
        this.#settings = settings;
    }

    /** A running server, which ends with the test. `DELTAQ_BIN` names the binary. */
    static async start(test: TestContext, settings: Record<string, string> = {}): Promise<Server> {
        const binary = process.env["DELTAQ_BIN"];
        if (binary === undefined) {
            throw new Error("DELTAQ_BIN must name the deltaq binary");
        }
        const folder = mkdtempSync(join(tmpdir(), "deltaq-typescript-"));
        const server = new Server(binary, folder, settings);
        test.after(async () => {
            await server.stop("SIGKILL");
            rmSync(folder, { recursive: true });
        });
        await server.run();
        return server;
    }

    get url(): string {
        return `http://127.0.0.1:${this.port}`;
    }

    client(options?: ClientOptions): Client {
        return new Client(this.url, options);
    }

    queue<T = any>(name = "prices"): Queue<T> {
        return this.client().queue<T>(name);
    }

    /** Starts the process, on the port that it had before. */
    async run(): Promise<void> {
        const ready = join(this.#folder, "ready");
        rmSync(ready, { force: true });
        const options = ["--listen", `127.0.0.1:${this.port}`, "--metrics-listen", "", "--ready-file", ready, "--log-level", "warn"];
        const child = spawn(this.#binary, ["serve", "--data-dir", join(this.#folder, "data"), ...options], {
            stdio: ["ignore", "ignore", "inherit"],
            env: { PATH: process.env["PATH"], ...this.#settings },
        });
        this.#process = child;
        await until(() => existsSync(ready) || child.exitCode !== null, "the server is ready");
        this.port = Number(JSON.parse(readFileSync(ready, "utf8")).api.split(":").at(-1));
    }

    async stop(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
        const child = this.#process;
        this.#process = undefined;
        if (child !== undefined && child.exitCode === null) {
            const exit = once(child, "exit");
            child.kill(signal);
            await exit;
        }
    }
}

/** Waits until a condition holds. */
export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
    const end = performance.now() + PATIENCE_MS;
    while (!(await condition())) {
        if (performance.now() > end) {
            throw new Error(`still not: ${what}`);
        }
        await sleep(20);
    }
}

/** The URL of an HTTP server that a test controls. It ends with the test. */
export async function web(test: TestContext, answer: (request: IncomingMessage, response: ServerResponse, count: number) => void): Promise<string> {
    let count = 0;
    const server = createServer((request, response) => answer(request, response, ++count));
    await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve));
    test.after(() => {
        server.closeAllConnections();
        server.close();
    });
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Refuses a request. */
export function refuse(response: ServerResponse, problem: Partial<Problem>, headers: Record<string, string> = {}): void {
    response.writeHead(problem.status ?? 503, { "content-type": "application/problem+json", ...headers });
    response.end(JSON.stringify({ title: "", detail: "no", request_id: "1", ...problem }));
}
