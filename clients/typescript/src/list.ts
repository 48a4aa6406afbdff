/** Lists of the API, which come in pages. */

import type { ListPage, Page } from "./documents.js";

/** A list: `for await (const item of list)` reads all of it, page by page; `page()` reads one page. */
export class List<Item, P extends ListPage<Item> = Page<Item>> implements AsyncIterable<Item> {
    readonly #fetch: (token: string | undefined) => Promise<P>;

    constructor(fetch: (token: string | undefined) => Promise<P>) {
        this.#fetch = fetch;
    }

    /** The first page or, with the `continue` of a page, the page after it. */
    page(token?: string | null): Promise<P> {
        return this.#fetch(token ?? undefined);
    }

    /** All pages. */
    async *pages(): AsyncGenerator<P, void, void> {
        let token: string | null | undefined;
        do {
            const page = await this.#fetch(token ?? undefined);
            yield page;
            token = page.continue;
        } while (token !== null);
    }

    async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, void> {
        for await (const page of this.pages()) {
            yield* page.items;
        }
    }

    /** All items. This keeps the whole list in memory. */
    async all(): Promise<Item[]> {
        const items: Item[] = [];
        for await (const page of this.pages()) {
            items.push(...page.items);
        }
        return items;
    }
}
