/** The pauses of a worker whose keys fail. The scenarios of tests/clients have a server. */

import assert from "node:assert/strict";
import test from "node:test";

import { Breaker } from "../src/breaker.js";
import { Client, Worker } from "../src/index.js";

/**
 * With the limit 3. The key and the outcome of a handler end with "!" if a pause begins, and with "+" if the worker goes on. A number is the length of the
 * pause in seconds, which passes.
 */
const SCRIPTS = [
    "a:nack b:nack c:nack! 1 d:nack! 2 e:nack! 4 f:ack+ a:nack b:nack c:nack! 1",
    "a:nack a:nack a:nack a:nack b:nack c:nack!",
    "a:nack b:nack c:ack a:nack b:nack c:done a:nack b:nack c:reject a:nack b:nack c:release d:nack!",
    "a:nack b:nack c:nack! 1 a:release! 1 a:release! 1 a:nack! 2 b:reject+ c:nack",
    "a:nack b:nack c:nack! 1 x:nack! 2 x:nack! 4 x:nack! 8 x:nack! 16 x:nack! 32 x:nack! 60 x:nack! 60 x:done+",
];

for (const script of SCRIPTS) {
    test(`a breaker: ${script}`, () => {
        const breaker = new Breaker(3);
        let now = 1_000;
        script.split(" ").forEach((step, number) => {
            const seconds = Number(step);
            if (seconds > 0) {
                assert.deepEqual([breaker.pauseMs, breaker.room(now + seconds * 1_000 - 1)], [seconds * 1_000, 0]);
                now += seconds * 1_000;
                assert.equal(breaker.room(now), 1);
                return;
            }
            const [key = "", as = ""] = step.replace(/[!+]/, "").split(":");
            assert.ok(breaker.room(now) > 0, step);
            breaker.started(`${number}`);
            assert.equal(breaker.room(now), breaker.pauseMs > 0 ? 0 : Infinity);
            const expected = step.endsWith("!") ? "begins" : step.endsWith("+") ? "ends" : undefined;
            assert.equal(breaker.ended(now, `${number}`, key, as as "ack"), expected, step);
        });
    });
}

test("handlers that began before a pause do not end it", () => {
    const breaker = new Breaker(1);
    ["1", "2", "3"].forEach(id => breaker.started(id));
    assert.equal(breaker.ended(0, "1", "a", "nack"), "begins");
    assert.equal(breaker.ended(0, "2", "b", "ack"), undefined);
    breaker.started("4");
    assert.equal(breaker.ended(1_000, "3", "c", "ack"), undefined);
    assert.equal(breaker.room(99_000), 0);
    assert.equal(breaker.ended(1_000, "4", "d", "ack"), "ends");
});

test("without a limit, nothing pauses", () => {
    const breaker = new Breaker(undefined);
    for (let number = 0; number < 5_000; number += 1) {
        assert.equal(breaker.ended(0, "1", `k${number}`, "nack"), undefined);
    }
    assert.throws(() => new Worker(new Client("http://localhost:7070").queue("q"), () => undefined, { breaker: 0 }), /breaker is 0/);
});
