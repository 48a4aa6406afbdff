/** The newest change of an item. */

import type { Delta, PoppedItem } from "./documents.js";

/** The newest change of an item; `object` in it is the newest object, for a deleted key its last one. Throws in mode keys, whose items have no changes. */
export function newest<T>(item: Pick<PoppedItem<T>, "key" | "deltas">): Delta<T> {
    const delta = item.deltas.at(-1);
    if (delta === undefined) {
        throw new RangeError(`the item "${item.key}" has no deltas: its queue is of mode keys`);
    }
    return delta;
}

/** Whether the newest change of an item is a deletion. */
export function isDeleted(item: Pick<PoppedItem<unknown>, "deltas">): boolean {
    return item.deltas.at(-1)?.type === "Deleted";
}
