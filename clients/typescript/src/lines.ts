/** Lines of a stream. */

import { causes, ConnectionError } from "./error.js";

/**
 * The complete lines of a body. A last line without a line break was cut off and is left out.
 *
 * Throws a `ConnectionError` if the stream breaks, or if it is silent for longer than `idleMs`. Ending the loop closes the connection.
 */
export async function* lines(body: ReadableStream<Uint8Array>, idleMs: number): AsyncGenerator<string, void, void> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let rest = "";
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isSilent = false;
    try {
        for (;;) {
            timer = setTimeout(() => {
                isSilent = true;
                void reader.cancel().catch(() => undefined);
            }, idleMs);
            const { done, value } = await reader.read().catch(broken => {
                throw new ConnectionError(`the stream broke: ${causes(broken)}`, { cause: broken });
            });
            clearTimeout(timer);
            if (isSilent) {
                throw new ConnectionError(`nothing came for ${idleMs} ms; the connection is taken for lost`);
            }
            if (done) {
                return;
            }
            const pieces = decoder.decode(value, { stream: true }).split("\n");
            pieces[0] = rest + pieces[0];
            rest = pieces.pop() ?? "";
            yield* pieces;
        }
    } finally {
        clearTimeout(timer);
        void reader.cancel().catch(() => undefined);
    }
}
