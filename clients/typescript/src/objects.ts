/** The user's objects in the bodies of calls. */

import { messageOf } from "./error.js";

/**
 * Objects to send: one, or a list. A string is the JSON text of an object, and is sent unchanged, so numbers that JavaScript can't represent, such as
 * 64-bit integers, stay exact.
 */
export type Objects<T> = T | string | readonly (T | string)[];

/** Length of the pieces of a streamed body, in UTF-16 code units. */
const PIECE_LENGTH = 65_536;

/** The JSON text of one object. `call` is for messages. */
function objectText(object: unknown, call: string): string {
    const text = typeof object === "string" ? object : stringify(object, call);
    if (text === undefined) {
        throw new TypeError(`${call}: ${String(object)} is not a JSON object`);
    }
    return text;
}

/** The JSON text of a value. Values such as functions have none. */
function stringify(value: unknown, call: string): string | undefined {
    try {
        return JSON.stringify(value);
    } catch (error) {
        const hint = "a BigInt has no JSON text in JavaScript; send the text of the object instead, and read such numbers with Client.rawQueue";
        throw new TypeError(`${call}: the object can't be sent: ${messageOf(error)}${hasBigInt(value) ? `: ${hint}` : ""}`, { cause: error });
    }
}

function hasBigInt(value: unknown, depth = 0): boolean {
    const isDeep = typeof value === "object" && value !== null && depth < 10;
    return typeof value === "bigint" || (isDeep && Object.values(value).some(member => hasBigInt(member, depth + 1)));
}

/** The body with an object or a list. */
export function objectsText<T>(objects: Objects<T>, call: string): string {
    return Array.isArray(objects) ? `[${objects.map(object => presentText(object, call)).join(",")}]` : presentText(objects, call);
}

/** The JSON text of one object, which is not null: a call without objects would queue nothing, and succeed. */
function presentText(object: unknown, call: string): string {
    const text = objectText(object, call);
    if (text.trim() === "null") {
        throw new TypeError(`${call}: null is not a JSON object`);
    }
    return text;
}

/** A list of documents with objects in them, such as deltas. The member `object` goes into the body as text. */
export function enclosedText(documents: readonly { object?: unknown }[], call: string): string {
    const texts = documents.map(({ object, ...rest }) => {
        const outer = JSON.stringify(rest);
        return object === undefined ? outer : `${outer.slice(0, -1)}${outer === "{}" ? "" : ","}"object":${objectText(object, call)}}`;
    });
    return `[${texts.join(",")}]`;
}

/** The lines of a complete list. The last line has the number of objects, because a truncated body can look complete to HTTP. */
export function* listLines<T>(objects: Iterable<T | string>, call: string): Generator<string, void, void> {
    let count = 0;
    for (const object of objects) {
        yield lineOf(object, call);
        count += 1;
    }
    yield endLine(count);
}

/** The lines of `listLines` as a stream. It is read no faster than it is sent. */
export function listStream<T>(objects: AsyncIterable<T | string>, call: string): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    const iterator = objects[Symbol.asyncIterator]();
    let count = 0;
    return new ReadableStream({
        async pull(controller) {
            let piece = "";
            while (piece.length < PIECE_LENGTH) {
                const next = await iterator.next();
                if (next.done) {
                    controller.enqueue(encoder.encode(piece + endLine(count)));
                    controller.close();
                    return;
                }
                piece += lineOf(next.value, call);
                count += 1;
            }
            controller.enqueue(encoder.encode(piece));
        },
        async cancel() {
            await iterator.return?.();
        },
    });
}

/** The object on one line. The user's JSON text may have line breaks between its members. */
function lineOf(object: unknown, call: string): string {
    return `${objectText(object, call).replace(/[\r\n]/g, " ")}\n`;
}

function endLine(count: number): string {
    return `{"$end":${count}}\n`;
}
