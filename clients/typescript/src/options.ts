/** Options of the calls on a queue: the parameters of the API, in camel case. */

import type { Hold, ItemState, Settle, View } from "./documents.js";
import type { Duration } from "./duration.js";
import type { CallOptions } from "./transport.js";

export interface PatchOptions extends CallOptions {
    /** Detach the followers that the new settings do not allow. Otherwise they refuse the call. */
    force?: boolean | undefined;
    /** The ETag of the settings that the caller has read. If they have changed, the call is refused (412 `precondition-failed`). */
    ifMatch?: string | undefined;
}

export interface PutOptions extends PatchOptions {
    /** Only if the queue does not exist. */
    ifAbsent?: boolean | undefined;
}

export interface SelectedOptions extends CallOptions {
    /** The number of keys that the caller expects. If the call selects another number, it is refused (409 `count-changed`). */
    expectedCount?: number | undefined;
}

export interface ProduceOptions extends CallOptions {
    /** The name of the producer, which becomes the owner of the keys. */
    source?: string | undefined;
    /** With `source`: the number of the call, which is applied once. A repeat with the same number changes nothing. */
    sequence?: number | undefined;
    /** Refuse the call if the queue does not exist, instead of creating it. */
    mustExist?: boolean | undefined;
    /** The W3C trace that led to the call. */
    traceparent?: string | undefined;
}

/** The object that a change of a single object expects. */
export interface MatchOptions {
    /** The ETag of the object that the caller has read with `latestObject`. If the key has another one, the call is refused (412 `precondition-failed`). */
    ifMatch?: string | undefined;
}

/** How long the keys of a call wait for a pause in their changes. */
export interface DebounceOptions {
    /** The time that the keys must be quiet before they are delivered, instead of the setting; 0s for none. */
    debounce?: Duration | undefined;
    /** Only with `debounce`: the longest wait, at least `debounce`; default 10 times `debounce`. */
    maxWait?: Duration | undefined;
}

/** When the keys of a call are delivered, among others that are ready. */
export interface OrderOptions {
    /** How much earlier than they did the keys count as arrived, instead of the setting: 10m, or -10m for later. */
    headStart?: string | undefined;
}

export interface AddOptions extends ProduceOptions, DebounceOptions, OrderOptions, MatchOptions {
    /** Only if the key of the single object has no object. */
    ifAbsent?: boolean | undefined;
    delay?: Duration | undefined;
    /** The key of a single object that does not contain it. */
    key?: string | undefined;
}

export interface ReplaceOptions extends ProduceOptions {
    onlyChanged?: boolean | undefined;
    maxDeletePercent?: number | undefined;
    maxDeletes?: number | undefined;
    allowEmpty?: boolean | undefined;
    /** Take the last of several objects with the same key. Otherwise they refuse the list. */
    keepLast?: boolean | undefined;
    /**
     * Leave out invalid objects: at most a tenth of the list. A single invalid object in a list of several is always left out; a list whose only
     * object is invalid is refused. The keys of these objects keep their state.
     */
    skipInvalid?: boolean | undefined;
    dryRun?: boolean | undefined;
}

export interface PopOptions extends CallOptions {
    /** How long to wait for a key, at most 55s. */
    wait?: Duration | undefined;
    /** Maximum number of keys, up to 1,000. */
    max?: number | undefined;
    leaseDuration?: Duration | undefined;
    worker?: string | undefined;
    /** The id of this pop: a repeat with the same id, for example after a lost reply, returns the same leases. Default: a random id. */
    id?: string | undefined;
    /** The only group whose keys are taken, outside its turns. The empty text is the group without a name. */
    group?: string | undefined;
    /** Whether each item has the object that was acknowledged last. */
    withKnown?: boolean | undefined;
    /** Whether each item has the difference from that object to the newest one. */
    withDiff?: boolean | undefined;
    /** Leases to settle before the pop. */
    settle?: readonly Settle[] | undefined;
}

export interface FailOptions extends CallOptions {
    delay?: Duration | undefined;
    /** If true, a new change does not shorten `delay` or, without it, the backoff of the keys. */
    floor?: boolean | undefined;
    error?: string | undefined;
}

export interface ExtendOptions extends CallOptions {
    /** The length of the leases from now on. Default: the setting of the queue. */
    leaseDuration?: Duration | undefined;
    /** The longest wait for a newer change of one of the keys. Default: no wait. */
    untilChanged?: Duration | undefined;
}

export interface Holding {
    /** How long nothing of the scope is delivered, because the target asks for it. At most an hour. */
    hold?: Duration | undefined;
    /** What is held. A key is held only if it is released. Default "queue". */
    holdScope?: Hold["scope"] | undefined;
}

export interface HoldOptions extends CallOptions, Holding {}

export interface ListOptions extends CallOptions {
    /** Maximum number of items in a page. */
    limit?: number | undefined;
}

export interface ItemsOptions extends ListOptions {
    /** Default: all states. */
    state?: readonly ItemState[] | undefined;
    worker?: string | undefined;
    prefix?: string | undefined;
    /** Only keys that this source owns. */
    source?: string | undefined;
    /** Only keys whose last failure had exactly this error. The empty text selects keys without an error. */
    error?: string | undefined;
    key?: string | undefined;
    /** Whether each item has the difference from the object that was acknowledged last to the newest one. */
    withDiff?: boolean | undefined;
}

export interface ViewOptions extends ListOptions {
    prefix?: string | undefined;
    source?: string | undefined;
    shard?: string | undefined;
    key?: string | undefined;
}

export interface KnownOptions extends ViewOptions {
    /** With `value`: only the objects that have this value in this index of the server. */
    index?: string | undefined;
    value?: string | undefined;
    wait?: Duration | undefined;
}

export interface GetOptions extends CallOptions {
    /** The version in the reply to an earlier call. If the queue does not have this version, the read is refused (409 or 410). */
    minResourceVersion?: number | undefined;
}

export interface SyncedOptions extends CallOptions {
    resourceVersion?: number | "now" | undefined;
    wait?: Duration | undefined;
}

export interface WatchOptions {
    /** Ends the watch. */
    signal?: AbortSignal | undefined;
    view?: View | undefined;
    /** The watch sends the changes after this version. 0, the default, begins with all keys, and `now` with the next change. */
    resourceVersion?: number | "now" | undefined;
    prefix?: string | undefined;
    shard?: string | undefined;
    /** The interval of bookmarks while nothing changes, 1s to 1m. Default 15s. */
    bookmark?: Duration | undefined;
}
