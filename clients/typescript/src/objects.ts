/** Objects of the user in the bodies of calls. */

/**
 * Objects to send: one, or a list. A string is an object as JSON text, which is sent as it is: numbers that JavaScript can't hold, such as 64-bit
 * integers, stay exact.
 */
export type Objects<T> = T | string | readonly (T | string)[];

/** Text of which a body is put together, in bytes (UTF-16 units). */
const PIECE_LENGTH = 65_536;

/** The JSON text of one object. */
export function objectText(object: unknown): string {
    const text = typeof object === "string" ? object : JSON.stringify(object);
    if (text === undefined) {
        throw new TypeError(`${String(object)} is not a JSON object`);
    }
    return text;
}

/** The body with an object or a list. */
export function objectsText<T>(objects: Objects<T>): string {
    return Array.isArray(objects) ? `[${objects.map(objectText).join(",")}]` : objectText(objects);
}

/** Documents around objects, such as deltas: `object` is a user's object, and goes into the body as text. */
export function enclosedText(documents: readonly { object?: unknown }[]): string {
    const texts = documents.map(({ object, ...rest }) => {
        const outer = JSON.stringify(rest);
        return object === undefined ? outer : `${outer.slice(0, -1)}${outer === "{}" ? "" : ","}"object":${objectText(object)}}`;
    });
    return `[${texts.join(",")}]`;
}

/** The lines of a complete list. The last one says how many there are, because a body that was cut off can look complete to HTTP. */
export function* listLines<T>(objects: Iterable<T | string>): Generator<string, void, void> {
    let count = 0;
    for (const object of objects) {
        yield lineOf(object);
        count += 1;
    }
    yield endLine(count);
}

/** The lines of `listLines` as a stream. It is read no faster than it is sent. */
export function listStream<T>(objects: AsyncIterable<T | string>): ReadableStream<Uint8Array> {
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
                piece += lineOf(next.value);
                count += 1;
            }
            controller.enqueue(encoder.encode(piece));
        },
        async cancel() {
            await iterator.return?.();
        },
    });
}

/** One object as one line: text of the user may have line breaks between its members. */
function lineOf(object: unknown): string {
    return `${objectText(object).replace(/[\r\n]/g, " ")}\n`;
}

function endLine(count: number): string {
    return `{"$end":${count}}\n`;
}
