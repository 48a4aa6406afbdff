import assert from "node:assert/strict";
import test from "node:test";

import { parseAroundObjects } from "../src/json.js";

const parse = (text: string) => parseAroundObjects(text) as any;

test("the document around the objects is parsed", () => {
    const text = '{"resource_version":246012345678337,"attempt":1,"jitter":0.1,"n":-1.5e3,"continue":null}';
    assert.deepEqual(parse(text), { resource_version: 246012345678337, attempt: 1, jitter: 0.1, n: -1500, continue: null });
});

test("objects of the user are text, whatever their members are", () => {
    const [object, known] = ['{"object":[2],"known":{"a":1},"resource_version":"x"}', '{"schema":3}'];
    assert.deepEqual(parse(`{"object":${object},"known":${known}}`), { object, known });
});

test("the status of a queue has a number of known objects", () => {
    assert.deepEqual(parse('{"known":7}'), { known: 7 });
});

test("an object is available as its exact text", () => {
    const text = '{ "n": 18446744073709551615, "s":"}\\"{[\\\\", "list":[ [1], {} ,-0.0]}';
    assert.equal(parse(`{"items":[{"object":${text} , "key":"a"}]}`).items[0].object, text);
});

test("a JSON Schema in the settings is parsed as a whole", () => {
    assert.deepEqual(parse('{"schema":{"properties":{"object":{"type":"object"}}}}'), { schema: { properties: { object: { type: "object" } } } });
});

test("a difference and its settings are parsed as a whole", () => {
    const operation = '{"op":"add","path":"/known","value":{"object":{"a":1}}}';
    assert.deepEqual(parse(`{"diff":[${operation}]}`), { diff: [{ op: "add", path: "/known", value: { object: { a: 1 } } }] });
    assert.deepEqual(parse('{"diff":null}'), { diff: null });
    assert.deepEqual(parse('{"diff":{"array_keys":{"/object":"/known"}}}'), { diff: { array_keys: { "/object": "/known" } } });
});

test("strings with escapes, empty lists and white space", () => {
    assert.deepEqual(parse(' {"a" : "\\u00e9\\"\\\\" ,\n"b":[ ],\t"c":{ },"d":[true,false,null]} '), {
        a: 'é"\\',
        b: [],
        c: {},
        d: [true, false, null],
    });
});

test("a member __proto__ changes no prototype", () => {
    assert.equal(Object.getPrototypeOf(parse('{"__proto__":{"a":1}}')), Object.prototype);
});

test("what JSON.parse refuses is refused", () => {
    const wrong = ["", "{", '{"a"', '{"a":', '{"a":1', '{"a":1,}', "[1,]", "[1 2]", '"a', '"a\\"', "{a:1}", "01", "1.", "tru", "nul", "{} {}", "<html>", '{"a":"\\x"}'];
    for (const text of wrong) {
        assert.throws(() => JSON.parse(text), SyntaxError);
        assert.throws(() => parse(text), SyntaxError, text);
    }
    for (const text of ['{"object":{"a":1}', '{"object":[}', '{"object":"a}']) {
        assert.throws(() => parse(text), SyntaxError, text);
    }
});

test("random documents are parsed as by JSON.parse", () => {
    let state = 1;
    const random = (below: number) => {
        state = (state * 48271) % 2147483647;
        return state % below;
    };
    const value = (depth: number): unknown => {
        const texts = ["", "a", 'q"', "\\", "é", "}{", "\n", "\u2028"];
        switch (random(depth > 4 ? 4 : 6)) {
            case 0:
                return random(1_000_000) / (1 + random(9));
            case 1:
                return texts[random(texts.length)];
            case 2:
                return random(2) === 0;
            case 3:
                return null;
            case 4:
                return Array.from({ length: random(4) }, () => value(depth + 1));
            default:
                return Object.fromEntries(Array.from({ length: random(4) }, () => [`n${random(9)}${texts[random(texts.length)]}`, value(depth + 1)]));
        }
    };
    for (let run = 0; run < 2_000; run += 1) {
        const document = { items: [{ object: value(0) }], more: value(0) };
        for (const text of [JSON.stringify(document), JSON.stringify(document, null, 1)]) {
            const parsed = parse(text);
            parsed.items[0].object = JSON.parse(parsed.items[0].object);
            assert.deepEqual(parsed, document);
        }
    }
});
