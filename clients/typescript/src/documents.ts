/**
 * The documents of the HTTP API, with the names of the API. `T` is the type of the user's objects. Enums in replies also allow any other text,
 * because a newer server may have more values. A member without a value is null; in popped items it is absent.
 */

import type { Duration } from "./duration.js";

/** A value that this version knows, or another text from a newer server. */
export type Open<Known extends string> = Known | (string & {});

/** An instant: RFC 3339 in UTC with milliseconds. */
export type Timestamp = string;

export type DeltaType = Open<"Added" | "Updated" | "Deleted" | "Replaced" | "Sync">;
export type LeaseOutcome = Open<"acked" | "done" | "nacked" | "released" | "rejected" | "expired" | "unknown">;
export type SettleAs = "ack" | "done" | "nack" | "release" | "reject" | "extend";
export type ItemState = "ready" | "delayed" | "leased" | "parked";
export type View = "latest" | "known";

/** A problem document (RFC 9457). Programs should compare `code`. */
export interface Problem {
    type: string;
    title: string;
    status: number;
    detail: string;
    /** A suggestion, such as `did you mean "wait"?`. */
    hint?: string;
    code: string;
    retryable: boolean;
    request_id: string;
    retry_after_ms?: number;
    limit?: number | string;
    queue?: string;
    parameter?: string;
    field?: string;
    index?: number;
    line?: number;
    column?: number;
    pointer?: string;
    errors?: { pointer: string; schema_pointer: string; detail: string }[];
    settled?: Settled[];
    stale?: number;
    /** For `expired`: why the position can't be continued. */
    reason?: Open<"ahead" | "too_old" | "lost" | "wrong_list">;
    /** For `count-changed`: the current number of selected keys. */
    count?: number;
    /** For `would-remove`: the settings that a PUT would remove. */
    fields?: string[];
    /** Further fields of some problems. */
    [field: string]: unknown;
}

export interface Delta<T> {
    type: DeltaType;
    resource_version: number;
    queued_at: Timestamp;
    object: T;
    final_state_unknown?: boolean | null;
    source?: string | null;
    coalesced?: number | null;
    traceparent?: string | null;
}

export interface Lease {
    id: string;
    /** The fencing token: it grows with every lease of the queue. */
    token: number;
    worker: string | null;
    expires_at: Timestamp;
    expires_in_ms: number;
}

/** An operation of a JSON patch (RFC 6902), with the value that it replaces or removes. */
export interface DiffOperation {
    op: "add" | "remove" | "replace";
    path: string;
    /** The new value; absent from `remove`. */
    value?: unknown;
    /** The value before; absent from `add`. */
    old?: unknown;
}

/** A delivered key. */
export interface PoppedItem<T> {
    key: string;
    lease: Lease;
    attempt: number;
    failures: number;
    is_in_initial_list: boolean;
    /** Every change since the last ack, oldest first. In mode events only the oldest, in mode keys none. */
    deltas: Delta<T>[];
    /** With `withKnown`: the object that was acknowledged last. */
    known?: T;
    /** With `withDiff`: the operations that turn that object into the newest one. Null without that object, for a deletion, and if it is too large. */
    diff?: DiffOperation[] | null;
    diff_omitted?: "too_large" | null;
}

export interface Popped<T> {
    items: PoppedItem<T>[];
    /** The results of the settles of the pop. */
    settled: Settled[];
    closed: boolean;
    paused: boolean;
    /** While a hold stops delivery: when it ends. */
    held_until?: Timestamp | null;
}

/** One lease, or several. */
export type SettledLeases = { lease_id: string; lease_ids?: never } | { lease_id?: never; lease_ids: readonly string[] };

/** A time in which nothing of the queue or of the group is delivered, because the target of the work asks for it. More than 1h counts as 1h. */
export interface Hold {
    scope: "queue" | "group" | "key";
    for: Duration;
}

/** Leases to settle or extend. */
export type Settle = SettledLeases & {
    as: SettleAs;
    /** For a nack or done. */
    delay?: Duration | undefined;
    /** For a nack: true if a new change must not shorten `delay` or, without it, the backoff. */
    floor?: boolean | undefined;
    /** For a nack or reject. */
    error?: string | undefined;
    /** For an ack or release. */
    hold?: Hold | undefined;
    /** For an ack, nack or release of one lease, in mode `delta`: the `resource_version` of a leased delta. The deltas up to it are acknowledged, and only
     * the others are settled in the given way; with ack they are delivered again at once. */
    through?: number | undefined;
    /** For an ack with `through`: true if the lease goes on with the other deltas. */
    keep?: boolean | undefined;
    /** For an extend. */
    lease_duration?: Duration | undefined;
};

/** The result for one lease. */
export type Settled = Ended | Extended;

export interface Ended {
    lease_id: string;
    as: Exclude<SettleAs, "extend">;
    result: Open<"ok" | "repeated" | "stale" | "not_leased">;
    /** For `stale`: how the lease had ended. */
    outcome: LeaseOutcome | null;
    failures: number | null;
    due_at: Timestamp | null;
    parked: boolean | null;
    /** After a settle with `hold`: when the hold of the queue ends. */
    held_until?: Timestamp | null;
}

export interface Extended {
    lease_id: string;
    as: "extend";
    result: Open<"ok" | "stale">;
    outcome: LeaseOutcome | null;
    expires_at: Timestamp | null;
    expires_in_ms: number | null;
    pending_deltas: number | null;
    deleted: boolean | null;
}

/** The results of a call, one for each lease, in order. */
export interface SettledList<Row extends Settled = Settled> {
    settled: Row[];
    stale: number;
}

/** The reply to a produce call. */
export interface Produced {
    resource_version: number;
    queued: number;
    /** Mode keys: adds of keys that were already ready. */
    merged: number;
    ignored: number;
    stale: number;
    duplicate: boolean;
    /** With a sequence number: the last number of the source that was applied. */
    sequence: number | null;
    /** The id of the queue. If it has changed, the queue was deleted and created again, and lacks earlier objects. Null in a dry run without a queue. */
    incarnation: string | null;
    /** The life to which `resource_version` belongs. If it has changed, changes may be lost: `synced` with the version of an earlier reply shows whether. */
    life: string | null;
    /** For a rate-limited add: the keys with their failures. */
    keys: { key: string; failures: number; due_at: Timestamp | null; parked: boolean }[] | null;
    /** With `skipInvalid`: the number of objects that were left out, and the first 10 of them. */
    invalid: number;
    invalid_objects: { index: number; key: string | null; code: string; detail: string }[];
}

export interface ReplaceCounts {
    replaced: number;
    deleted: number;
    unchanged: number;
    skipped: number;
    taken_over: number;
    stale: number;
}

export type Replaced = Produced & ReplaceCounts;

/** An entry of a mixed batch. */
export interface DeltaCall<T> {
    type: "Added" | "Updated" | "Deleted";
    key?: string | undefined;
    object?: T | undefined;
    source?: string | undefined;
    delay?: Duration | undefined;
    /** The time that the key must be quiet before it is delivered, instead of the setting; 0s for none. */
    debounce?: Duration | undefined;
    /** Only with `debounce`: the longest wait, at least `debounce`; default 10 times `debounce`. */
    max_wait?: Duration | undefined;
    /** How much earlier than it did the delta counts as arrived, instead of the setting `order`: 10m, or -10m for later. */
    head_start?: string | undefined;
    final_state_unknown?: boolean | undefined;
    /** The `resource_version` that the newest object of the key must have, or 0 for no object; otherwise the whole batch is refused. */
    expected_version?: number | undefined;
}

/** An object to store as known without queueing a delta. */
export interface SeedCall<T> {
    key?: string | undefined;
    source?: string | null | undefined;
    object: T;
}

/** A page of any list. */
export interface ListPage<Item> {
    items: Item[];
    continue: string | null;
}

/** A page of a list of one queue. */
export interface Page<Item> extends ListPage<Item> {
    resource_version: number;
}

/** An object of a view. */
export interface ObjectDocument<T> {
    key: string;
    source: string | null;
    resource_version: number;
    object: T;
}

/** An object of a view with its ETag. */
export interface TaggedObject<T> extends ObjectDocument<T> {
    /** The ETag of the object, for `ifMatch` in a later change. */
    etag: string;
}

/** A key with waiting or leased deltas. */
export interface Item<T> {
    key: string;
    /** Null for a key without deltas that only has a failure count. */
    state: Open<ItemState> | null;
    deltas: Delta<T>[];
    leased_deltas: Delta<T>[];
    lease: Lease | null;
    /** Since when the worker holds the key; null unless it is leased. */
    leased_at: Timestamp | null;
    attempt: number;
    failures: number;
    last_error: string | null;
    due_at: Timestamp | null;
    source: string | null;
    /** From `item` with `withDiff`: as in the items of a pop. */
    diff?: DiffOperation[] | null;
    diff_omitted?: "too_large" | null;
}

export interface Explanation {
    key: string;
    reason: Open<"leased" | "delayed" | "debouncing" | "backing_off" | "parked" | "paused" | "held" | "queue_limit" | "group_limit" | "group_paused" | "group_held" | "key_held" | "rate_limited" | "group_rate_limited" | "closed" | "queued" | "next" | "nothing_waits" | "unknown">;
    explanation: string;
    lease: Lease | null;
    leased_at: Timestamp | null;
    due_at: Timestamp | null;
    latest_at: Timestamp | null;
    floor_at: Timestamp | null;
    failures: number;
    last_error: string | null;
    head_start_ms: number | null;
    priority: number | null;
    ahead: number | null;
    has_more_ahead: boolean;
    group: string | null;
    /** From 0 to 1. */
    group_share: number | null;
}

/** An error of parked keys. The empty text means keys without an error. */
export interface ParkedError {
    error: string;
    keys: number;
    first_key: string;
}

export interface ParkedErrorsPage extends Page<ParkedError> {
    /** Number of keys whose errors are not listed, because there are too many errors. */
    other_keys: number;
}

/** An entry of the history of a key. */
export interface HistoryEvent<T> {
    resource_version: number;
    at: Timestamp;
    event: string;
    type?: DeltaType | null;
    object?: T | null;
    source?: string | null;
    final_state_unknown?: boolean | null;
    traceparent?: string | null;
    lease_id?: string | null;
    worker?: string | null;
    expires_at?: Timestamp | null;
    through?: number | null;
    outcome?: LeaseOutcome | null;
    error?: string | null;
    parked?: boolean | null;
    due_at?: Timestamp | null;
}

export interface LastReplace {
    source: string | null;
    counts: ReplaceCounts;
    started_at: Timestamp;
    ended_at: Timestamp | null;
    aborted: boolean;
}

export interface SourceDocument {
    source: string;
    keys: number;
    last_call_at: Timestamp | null;
    last_contact_at: Timestamp | null;
    last_replaced_at: Timestamp | null;
    last_replace: LastReplace | null;
    sequence: number | null;
    /** How long the source may be silent. */
    stale_after: string | null;
    is_stale: boolean;
    /** The problem that the source has reported last. */
    problem: { detail: string; reported_at: Timestamp } | null;
}

export interface WorkerDocument {
    worker: string | null;
    leased: number;
    oldest_leased_at: Timestamp | null;
    next_expires_at: Timestamp | null;
    next_expires_in_ms: number | null;
    waiting: number;
    oldest_waiting_at: Timestamp | null;
    /** Leases that ended with an ack or a done in the last ten minutes. */
    recent_acks: number;
    /** Leases that ended with a nack or a reject, or that expired, in the last ten minutes. */
    recent_failures: number;
}

export interface IndexDocument {
    name: string;
    pointer: string;
    state: Open<"ready" | "building">;
    values: number;
    keys: number;
    omitted_values: number;
}

export interface IndexValue {
    value: string;
    keys: number;
}

export interface Synced {
    synced: boolean;
    remaining: number;
    /** For a call with a version: whether all changes up to that version are acknowledged. */
    reached: boolean | null;
    resource_version: number | null;
    parked: number | null;
}

/** A row of a watch: a change of a key, or a message about the watch. */
export interface WatchRow<T> {
    type: Open<"Added" | "Updated" | "Deleted" | "Bookmark" | "Error" | "Expired">;
    /** Absent in `Bookmark`, `Error` and `Expired`. */
    key?: string;
    resource_version?: number;
    object?: T | null;
    source?: string | null;
    final_state_unknown?: boolean | null;
    initial_events_end?: boolean | null;
    problem?: Problem;
}

export interface RateLimiter {
    item_exponential?: { base: Duration; max: Duration } | null | undefined;
    item_fast_slow?: { fast: Duration; slow: Duration; max_fast: number } | null | undefined;
    bucket?: { qps: number; burst: number } | null | undefined;
    max_wait?: Duration | null | undefined;
    jitter?: number | null | undefined;
}

/** How long a changed key waits for a pause in its changes. */
export interface Debounce {
    quiet: Duration;
    max_wait?: Duration | null | undefined;
    deletes?: "debounced" | "now" | null | undefined;
    lists?: boolean | null | undefined;
}

/** Which ready key is delivered first. */
export interface Order {
    head_start?: { pointer: string; default?: string | null } | null | undefined;
    /** With the step null, a key waits until no key with a higher priority is ready. */
    priority?: { pointer: string; step?: Duration | null } | null | undefined;
    initial_list?: string | null | undefined;
    resync?: string | null | undefined;
}

/** Groups of keys that take turns. */
export interface Groups {
    /** A JSON pointer, "source", or the text that ends the beginning of a key. */
    by: string | { key_prefix: string };
    max_leased?: number | null | undefined;
    /** The rate of each group. */
    rate?: DeliveryRate | null | undefined;
    /** The settings of single groups, by name. The empty name is that of the group without a name. */
    overrides?: Record<string, { weight?: number | null | undefined; max_leased?: number | null | undefined; rate?: DeliveryRate | null | undefined } | null> | undefined;
}

/** The first groups of a queue. */
export interface GroupList {
    groups: GroupDocument[];
    count: number;
    /** The share of a group is its weight divided by this sum. */
    weights: number;
    resource_version: number;
}

export interface GroupDocument {
    name: string | null;
    ready: number;
    leased: number;
    oldest_ready_age_ms: number | null;
    weight: number;
    max_leased: number | null;
    is_full: boolean;
    paused: boolean;
    held_until: Timestamp | null;
    rate: DeliveryRate | null;
    /** While the rate stops the delivery of the group: when it lets the next key through. */
    next_delivery_at: Timestamp | null;
}

/** How many keys are delivered per second, after a pause `burst` at once. */
export interface DeliveryRate {
    per_second: number;
    burst: number;
}

export interface Follow {
    queue: string;
    view?: View | null | undefined;
    prefix?: string | null | undefined;
    max_waiting?: number | null | undefined;
}

/** The value of a header: a text, or the first line of a secret of the server, behind a prefix such as `Bearer `. */
export type PushHeader = string | { secret: string; prefix?: string };

/** The endpoint that gets the keys of a queue as requests. */
export interface Push {
    url: string;
    format?: "standard" | "raw" | "cloudevents" | null | undefined;
    payload?: "full" | "known" | "thin" | null | undefined;
    /** The names of the secrets, from the settings of the server, that sign a request. */
    secrets?: string[] | null | undefined;
    timeout?: Duration | null | undefined;
    max_in_flight?: number | null | undefined;
    /** Maximum number of keys in a request. */
    batch?: number | null | undefined;
    /** The wait after each failure of a key; an empty list means the rate limiter of the queue. */
    retry?: Duration[] | null | undefined;
    reject_statuses?: number[] | null | undefined;
    /** How long the endpoint may fail before the queue pauses itself. */
    disable_after?: Duration | null | undefined;
    /** The origin in whose name the server asks the endpoint before it sends keys. */
    handshake?: string | null | undefined;
    /** Further headers of each request. */
    headers?: Record<string, PushHeader> | null | undefined;
    /** Whether the receiver of a 202 settles the key later. */
    async?: boolean | null | undefined;
}

/** A condition of a delivery: a header or a value of the body is one of the values. */
export interface HookCondition {
    /** Either this or `pointer`. */
    header?: string | null | undefined;
    pointer?: string | null | undefined;
    values: string[];
}

/** The webhooks of a vendor that a queue takes as changes. */
export interface Hook {
    scheme: "standard" | "github" | "stripe" | "shopify" | "slack" | "gitlab" | "hmac";
    /** The names of the secrets, from the settings of the server, of which one has signed a delivery. */
    secrets: string[];
    /** Where the signature is; only with the scheme hmac. */
    signature?: { header: string; prefix?: string | null; encoding?: "hex" | "base64" | null; timestamp_header?: string | null } | null | undefined;
    /** The JSON pointer to the stored object; empty for the whole body. */
    object?: string | null | undefined;
    /** `header:NAME` or a JSON pointer; null for the place that the vendor uses. */
    id?: string | null | undefined;
    /** The conditions that a delivery meets to be applied. */
    only?: HookCondition[] | null | undefined;
    /** The condition of a deletion. */
    deleted?: HookCondition | null | undefined;
    /** The source in whose name deliveries are applied. */
    source?: string | null | undefined;
    /** Whether a delivery that can't be applied gets 422; otherwise it is kept. */
    refuse?: boolean | null | undefined;
}

/** What an endpoint has answered to a test request. */
export interface PushTest {
    /** Null without a whole answer. */
    status: number | null;
    duration_ms: number;
    /** The status with the start of the body, or why there is no answer. */
    answer: string;
}

/** The settings of a queue. */
export interface QueueSettings {
    mode: "delta" | "latest" | "keys" | "events";
    key: (string | { pointer: string; optional?: boolean })[];
    known_objects: boolean;
    emit_replaced: boolean;
    lease: Duration;
    max_failures: number;
    rate_limiter: RateLimiter;
    max_keys: number;
    max_object_bytes: number;
    max_deltas_per_key: number;
    max_bytes_per_key: number;
    retention: { age?: Duration | null; bytes?: number | null };
    prune: string[];
    ignore: string[];
    version: string | null;
    version_ties: "stale" | "apply" | null;
    debounce: Debounce | null;
    order: Order | null;
    groups: Groups | null;
    max_leased: number | null;
    rate: DeliveryRate | null;
    resync_period: Duration | null;
    max_delete_percent: number | null;
    max_deletes: number | null;
    follow: Follow | null;
    push: Push | null;
    hook: Hook | null;
    /** What of a CloudEvent is stored, and the endings of the types that delete; null for the default. */
    cloudevents: { store?: "data" | "event" | null; deleted?: string[] | null } | null;
    /** The resource of the Kubernetes API that the queue is; null for none. */
    kubernetes: { group: string; version: string; kind: string; plural: string; view?: "latest" | "known" | null } | null;
    /** The owner of the file with which `deltaq apply` created the queue; null for none. A PUT that leaves it out keeps it. */
    owner: string | null;
    schema: unknown;
    indexes: Record<string, string>;
    /** `array_keys`: for the pointer to each array whose elements are compared one by one, the pointer to what identifies an element. */
    diff: { array_keys: Record<string, string> };
}

/** Settings to set. Null, or a member that is absent in a PUT, means the default. */
export type SettingsInput = { [Name in keyof Omit<QueueSettings, "key">]?: QueueSettings[Name] | null | undefined } & {
    key?: QueueSettings["key"] | string | null | undefined;
};

/** The settings of a queue with their ETag. */
export interface TaggedSettings {
    settings: QueueSettings;
    /** The ETag of the settings, for `ifMatch` in a later call. */
    etag: string;
}

/** What a change of settings would make of a queue. */
export interface SettingsPlan {
    /** The present settings; null if there is no queue of this name. */
    current: QueueSettings | null;
    /** The ETag of the present settings, for `ifMatch` in a later call; null if there is no queue of this name. */
    etag: string | null;
    /** The settings after the change. */
    planned: QueueSettings;
}

export interface QueueStatus {
    ready: number;
    delayed: number;
    leased: number;
    parked: number;
    known: number;
    held_bytes: number;
    waiters: number;
    has_synced: boolean;
    initial_remaining: number;
    resource_version: number;
    changes: number;
    oldest_ready_age_ms: number;
    oldest_unacknowledged_age_ms: number;
    paused: boolean;
    held_until: Timestamp | null;
    pause_reason: Open<"endpoint_gone" | "endpoint_failing"> | null;
    closed: boolean;
    drained: boolean;
    building_indexes: string[];
    building_groups: boolean;
    last_replace: LastReplace | null;
    followers: string[];
    push: {
        state: Open<"sending" | "failing" | "disabled" | "refused">;
        in_flight: number;
        allowed_in_flight: number;
        last_success_at: Timestamp | null;
        last_error: string | null;
    } | null;
    hook: {
        kept: number;
        last_applied_at: Timestamp | null;
        last_rejected_at: Timestamp | null;
        last_rejected: string | null;
    } | null;
    follow: {
        state: Open<"listing" | "following" | "blocked" | "waiting">;
        resource_version: number | null;
        lag_events: number;
        lag_ms: number;
        reason: Open<"full" | "busy" | "failed" | "history_lost" | "not_granted"> | null;
        detail: string | null;
    } | null;
}

export interface QueueDocument {
    name: string;
    /** The id of the queue. It changes when the queue is deleted and created again. */
    incarnation: string;
    /** Changes with each start of the server. */
    life: string;
    auto_created: boolean;
    created_at: Timestamp;
    settings: QueueSettings;
    status: QueueStatus;
    /** In the reply to `close` with `drain`: whether no key is ready, delayed or leased. */
    drained: boolean | null;
}

export interface QueuePage extends ListPage<QueueDocument> {
    resource_version: null;
    unavailable: { name: string; code: string; detail: string }[];
}

export interface Info {
    name: string;
    version: string;
    durability: string;
    store: { kind: string; replicated: boolean | null };
    /** Null for a server that is not a node. */
    node: { name: string; partitions: number; owned: number[] } | null;
    uptime_ms: number;
    /** The memory that the process may use, in bytes; null if the system does not tell. */
    memory_bytes: number | null;
    /** The token of the call and what it permits; null on a server without tokens. */
    caller: { name: string; expires_at: Timestamp | null; grants: { verbs: string[]; queues: string[]; sources: string[] }[] } | null;
    /** The pages that the console links to; null without the setting. */
    links: { grafana: string | null; docs: string | null };
    limits: Record<string, number>;
}

/** What a node says of itself. */
export interface NodeDetails {
    version: string;
    store: string;
    durability: string;
    uptime_ms: number;
    queues: number;
    /** The epoch is null without a store. */
    owned: { partition: number; epoch: number | null }[];
    /** Free bytes of the file system with the data directory; null with PostgreSQL and without a store. */
    disk_free_bytes: number | null;
}

export interface NodeDocument {
    name: string;
    url: string;
    /** Whether it is the node that replies. */
    this: boolean;
    state: Open<"joining" | "serving" | "leaving" | "late">;
    partitions: number;
    queues: number;
    heartbeat_age_ms: number;
    /** How far its wall clock is ahead of the clock of the database; negative if it is behind. */
    clock_ahead_ms: number;
    /** Null if the node has not replied. */
    details: NodeDetails | null;
}

export interface NodeList {
    /** Empty for a single server. */
    nodes: NodeDocument[];
    partitions: number;
    without_owner: number;
    /** The process that replies. */
    this: NodeDetails;
}
