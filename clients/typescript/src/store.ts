/** The objects of a view in memory, with indexes. */

import { messageOf } from "./error.js";

/** The values of an object in an index; an object may have none, one or many. */
export type IndexFunc<T> = (object: T, key: string) => readonly string[];

/** The indexes of a store by name. */
export type Indexes<T> = Readonly<Record<string, IndexFunc<T>>>;

/** An object of the store. */
export interface Stored<T> {
    readonly object: T;
    readonly resource_version: number;
}

/** The read access of a program to the store of an informer. */
export interface ReadStore<T> {
    readonly size: number;
    get(key: string): T | undefined;
    list(): T[];
    keys(): string[];
    entries(): IterableIterator<[string, T]>;
    byIndex(index: string, value: string): T[];
    indexKeys(index: string, value: string): string[];
    indexValues(index: string): string[];
}

/** Invariant: a key is in an index under exactly the values that its index function gives for its current object. */
export class Store<T> implements ReadStore<T> {
    readonly #stored = new Map<string, Stored<T>>();
    readonly #functions: Indexes<T>;
    /** For each index, the keys of each value. */
    readonly #indexes = new Map<string, Map<string, Set<string>>>();

    constructor(indexes: Indexes<T> = {}) {
        this.#functions = indexes;
        for (const name of Object.keys(indexes)) {
            this.#indexes.set(name, new Map());
        }
    }

    get size(): number {
        return this.#stored.size;
    }

    get(key: string): T | undefined {
        return this.#stored.get(key)?.object;
    }

    list(): T[] {
        return Array.from(this.#stored.values(), stored => stored.object);
    }

    keys(): string[] {
        return [...this.#stored.keys()];
    }

    *entries(): IterableIterator<[string, T]> {
        for (const [key, { object }] of this.#stored) {
            yield [key, object];
        }
    }

    /** The objects that have this value in an index. Throws if there is no such index. */
    byIndex(index: string, value: string): T[] {
        return this.indexKeys(index, value).map(key => this.get(key) as T);
    }

    /** The keys of the objects that have this value in an index. */
    indexKeys(index: string, value: string): string[] {
        return [...(this.#index(index).get(value) ?? [])];
    }

    /** The values of an index that at least one object has. */
    indexValues(index: string): string[] {
        return [...this.#index(index).keys()];
    }

    /** An object with its version. */
    stored(key: string): Stored<T> | undefined {
        return this.#stored.get(key);
    }

    set(key: string, stored: Stored<T>): void {
        // The values come first: if an index function throws, the store keeps the former object.
        const values = this.#values(key, stored.object);
        this.delete(key);
        this.#stored.set(key, stored);
        for (const [index, value] of values) {
            const keys = this.#index(index);
            keys.set(value, (keys.get(value) ?? new Set()).add(key));
        }
    }

    delete(key: string): void {
        const stored = this.#stored.get(key);
        if (stored === undefined) {
            return;
        }
        this.#stored.delete(key);
        for (const [index, value] of this.#values(key, stored.object)) {
            const keys = this.#index(index).get(value);
            keys?.delete(key);
            if (keys?.size === 0) {
                this.#index(index).delete(value);
            }
        }
    }

    #values(key: string, object: T): [string, string][] {
        return Object.entries(this.#functions).flatMap(([index, of]) => {
            try {
                return of(object, key).map((value): [string, string] => [index, value]);
            } catch (error) {
                throw new Error(`the function of the index "${index}" has failed for the key "${key}": ${messageOf(error)}`, { cause: error });
            }
        });
    }

    #index(name: string): Map<string, Set<string>> {
        const index = this.#indexes.get(name);
        if (index === undefined) {
            throw new RangeError(`there is no index "${name}"; the indexes are ${JSON.stringify([...this.#indexes.keys()])}`);
        }
        return index;
    }
}
