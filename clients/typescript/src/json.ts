/**
 * Reads documents of the API and keeps the user's objects in them as text. `JSON.parse` would round numbers above 2^53, so this parser reads only
 * the document around the objects.
 */

/** Turns the text of a reply into a document. Throws a `SyntaxError` if it is not valid JSON. */
export type Parse = (text: string) => unknown;

/** Parses a document. Each of the user's objects in the result is its JSON text. */
export const parseAroundObjects: Parse = text => new Parser(text).document();

const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_LIST = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_LIST = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

class Parser {
    readonly #text: string;
    readonly #scalar = /(?:true|false|null|-?\d[\d.eE+-]*)/y;
    #at = 0;

    constructor(text: string) {
        this.#text = text;
    }

    document(): unknown {
        const value = this.#value("");
        if (!Number.isNaN(this.#next())) {
            throw this.#wrong();
        }
        return value;
    }

    /** The value of a member with this name. */
    #value(name: string): unknown {
        const first = this.#next();
        // In the status of a queue, `known` is a number.
        if (name === "object" || (name === "known" && first === OPEN_OBJECT)) {
            return this.#piece();
        }
        if (name === "schema" || name === "diff") {
            return JSON.parse(this.#piece());
        }
        switch (first) {
            case OPEN_OBJECT:
                return this.#object();
            case OPEN_LIST:
                return this.#list();
            case QUOTE:
                return this.#string();
            default:
                return JSON.parse(this.#scalarText());
        }
    }

    #object(): Record<string, unknown> {
        const members: Record<string, unknown> = {};
        this.#at += 1;
        if (this.#next() === CLOSE_OBJECT) {
            this.#at += 1;
            return members;
        }
        for (;;) {
            if (this.#next() !== QUOTE) {
                throw this.#wrong();
            }
            const name = this.#string();
            this.#take(COLON);
            const value = this.#value(name);
            // An assignment to `__proto__` would change the prototype; the API has no such member.
            if (name !== "__proto__") {
                members[name] = value;
            }
            if (this.#next() !== COMMA) {
                this.#take(CLOSE_OBJECT);
                return members;
            }
            this.#at += 1;
        }
    }

    #list(): unknown[] {
        const items: unknown[] = [];
        this.#at += 1;
        if (this.#next() === CLOSE_LIST) {
            this.#at += 1;
            return items;
        }
        for (;;) {
            items.push(this.#value(""));
            if (this.#next() !== COMMA) {
                this.#take(CLOSE_LIST);
                return items;
            }
            this.#at += 1;
        }
    }

    #string(): string {
        const start = this.#at;
        this.#skipString();
        const text = this.#text.slice(start, this.#at);
        return text.includes("\\") ? JSON.parse(text) : text.slice(1, -1);
    }

    /** The text of the next value of any type. Only its brackets and strings are checked. */
    #piece(): string {
        const start = this.#at;
        let depth = 0;
        do {
            const code = this.#next();
            if (code === QUOTE) {
                this.#skipString();
            } else if (code === OPEN_OBJECT || code === OPEN_LIST) {
                depth += 1;
                this.#at += 1;
            } else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
                depth -= 1;
                this.#at += 1;
            } else if (code === COMMA || code === COLON) {
                this.#at += 1;
            } else {
                this.#scalarText();
            }
        } while (depth > 0);
        return this.#text.slice(start, this.#at);
    }

    #scalarText(): string {
        this.#scalar.lastIndex = this.#at;
        const text = this.#scalar.exec(this.#text)?.[0];
        if (text === undefined) {
            throw this.#wrong();
        }
        this.#at += text.length;
        return text;
    }

    #skipString(): void {
        const start = this.#at;
        for (;;) {
            const end = this.#text.indexOf('"', this.#at + 1);
            if (end < 0) {
                this.#at = this.#text.length;
                throw this.#wrong();
            }
            let slash = end;
            while (slash > start && this.#text.charCodeAt(slash - 1) === BACKSLASH) {
                slash -= 1;
            }
            this.#at = end;
            if ((end - slash) % 2 === 0) {
                this.#at += 1;
                return;
            }
        }
    }

    #take(code: number): void {
        if (this.#next() !== code) {
            throw this.#wrong();
        }
        this.#at += 1;
    }

    /** The code of the next character that is not white space; NaN at the end. */
    #next(): number {
        for (;;) {
            const code = this.#text.charCodeAt(this.#at);
            if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) {
                return code;
            }
            this.#at += 1;
        }
    }

    #wrong(): SyntaxError {
        const length = this.#text.length;
        return new SyntaxError(this.#at >= length ? "the JSON ends early" : `wrong JSON at position ${this.#at} of ${length}`);
    }
}
