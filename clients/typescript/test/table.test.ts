/** Compares docs/clients.md, which has the names and defaults of all clients, with this client. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import type { Defaults } from "../src/defaults.js";
import {
    type AddOptions,
    Client,
    type GetOptions,
    Informer,
    isDeleted,
    type ItemsOptions,
    type ListOptions,
    Nack,
    newest,
    type PopOptions,
    type PutOptions,
    Queue,
    type ReplaceOptions,
    waitForCacheSync,
    Worker,
} from "../src/index.js";
import { INFORMER_DEFAULTS } from "../src/informer.js";
import * as otel from "../src/otel.js";
import { bounded } from "../src/outcome.js";
import { absentBackoff, RETRY_DEFAULTS } from "../src/retry.js";
import { Store } from "../src/store.js";
import { CLIENT_DEFAULTS } from "../src/transport.js";
import { LAST_SETTLES_MS } from "../src/worker-run.js";

/** From the folder of the compiled test, which is under target/. */
const page = readFileSync(new URL("../../../../docs/clients.md", import.meta.url), "utf8");

/** The cells of the rows with this number of columns, without headings. */
function rows(columns: number): string[][] {
    const lines = page.split("\n").filter(line => line.startsWith("|"));
    const cells = lines.map(line => line.split("|").slice(1, -1).map(cell => cell.trim()));
    return cells.filter(row => row.length === columns && row[0] !== "" && !row[0]!.startsWith("---"));
}

/** The options of a call: the compiler refuses a name that is missing or unknown. A call sends only options that are set. */
type Unset<Options> = Record<keyof Options, undefined>;

const call = { signal: undefined, retry: undefined, replyTimeout: undefined };
const produce = { ...call, source: undefined, sequence: undefined, mustExist: undefined, traceparent: undefined };
const put: Unset<PutOptions> = { ...call, ifMatch: undefined, ifAbsent: undefined, force: undefined };
const add: Unset<AddOptions> = {
    ...produce,
    debounce: undefined,
    maxWait: undefined,
    headStart: undefined,
    delay: undefined,
    key: undefined,
    ifMatch: undefined,
    ifAbsent: undefined,
};
const replace: Unset<ReplaceOptions> = {
    ...produce,
    onlyChanged: undefined,
    maxDeletePercent: undefined,
    maxDeletes: undefined,
    allowEmpty: undefined,
    keepLast: undefined,
    skipInvalid: undefined,
    dryRun: undefined,
};
const pop: Unset<PopOptions> = {
    ...call,
    wait: undefined,
    max: undefined,
    leaseDuration: undefined,
    worker: undefined,
    id: undefined,
    group: undefined,
    withKnown: undefined,
    withDiff: undefined,
    settle: undefined,
};
const get: Unset<GetOptions> = { ...call, minResourceVersion: undefined };
const list: Unset<ListOptions> = { ...call, limit: undefined };
const items: Unset<ItemsOptions> = {
    ...list,
    state: undefined,
    worker: undefined,
    prefix: undefined,
    source: undefined,
    error: undefined,
    key: undefined,
    withDiff: undefined,
};

const queue = new Client("http://localhost:7070").queue("q");
const worker = (options?: object) => new Worker(queue, () => undefined, options).options;

const options: Record<string, Defaults<any>> = {
    PutOptions: put,
    AddOptions: add,
    ReplaceOptions: replace,
    PopOptions: pop,
    GetOptions: get,
    ListOptions: list,
    ItemsOptions: items,
    ClientOptions: CLIENT_DEFAULTS,
    RetryOptions: RETRY_DEFAULTS,
    WorkerOptions: worker(),
    InformerOptions: INFORMER_DEFAULTS,
};
const classes: Record<string, { prototype: object }> = { Queue, Client, Informer, Store };
const functions: Record<string, unknown> = { waitForCacheSync, ...otel };

/** A default as the page writes it. */
function textOf(value: unknown, wanted: string): string {
    // An option of a call that is not set is not sent, and a flag then means no.
    if (value === undefined || value === Infinity) {
        return wanted === "no" ? "no" : "none";
    }
    return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

test("the client has the names and defaults of the page", () => {
    let compared = 0;
    for (const [label = "", ...cells] of [...rows(6), ...rows(7)]) {
        const wanted = cells.length === 6 ? cells.shift() : undefined;
        const name = cells[2]!.replaceAll("`", "");
        if (name === "-") {
            continue;
        }
        compared += 1;
        const [owner = "", member] = name.split(".");
        if (member === undefined) {
            assert.equal(typeof functions[owner], "function", label);
        } else if (wanted === undefined) {
            assert.ok(classes[owner] && member in classes[owner].prototype, `${label}: ${name}`);
        } else {
            assert.ok(options[owner] && member in options[owner], `${label}: ${name}`);
            const value = options[owner][member];
            if (wanted === "concurrency") {
                assert.deepEqual([value, worker({ concurrency: 7 }).batch], [1, 7]);
            } else if (wanted === "unique") {
                assert.notEqual(value, worker().name);
            } else {
                assert.equal(textOf(value, wanted), wanted, `${label}: ${name}`);
            }
        }
    }
    assert.ok(compared > 90, `${compared} names`);
});

test("the functions for items have the names of the page", () => {
    const names = rows(5).map(([, , name = ""]) => name.replaceAll("`", ""));
    assert.deepEqual(names, [newest.name, isDeleted.name, `${newest.name}(item).object`]);
});

test("what has no option has the value of the page", () => {
    const absent = absentBackoff();
    const pauses = Array.from({ length: 20 }, () => `${absent.after(undefined) / 1_000}s`);
    const values = [
        ["longest error of a failed key, of which the end is kept", `${bounded(Nack({ error: "x".repeat(9_999) })).error?.length} bytes`],
        ["first pause while the queue of a worker does not exist", pauses[0]],
        ["longest pause while the queue of a worker does not exist", pauses.at(-1)],
        ["time for the last calls of a worker that stops", `${LAST_SETTLES_MS / 1_000}s`],
    ];
    assert.deepEqual(rows(2), values);
});
