/**
 * The documents of the HTTP API, as docs/api.md describes them, with the names that they have there. `T` is the type of the user's objects. Enums of
 * replies also allow any other text, because a newer server may have more values.
 */

import type { Duration } from "./duration.js";

/** A value of a known list, or one of a newer server. */
export type Open<Known extends string> = Known | (string & {});

/** An instant: RFC 3339 in UTC with milliseconds. */
export type Timestamp = string;

export type DeltaType = Open<"Added" | "Updated" | "Deleted" | "Replaced" | "Sync">;
export type LeaseOutcome = Open<"acked" | "done" | "nacked" | "released" | "rejected" | "expired" | "unknown">;
export type SettleAs = "ack" | "done" | "nack" | "release" | "reject";
export type ItemState = "ready" | "delayed" | "leased" | "parked";
export type View = "latest" | "known";

/** A refusal (RFC 9457). `code` is the name to program against. */
export interface Problem {
    type: string;
    title: string;
    status: number;
    detail: string;
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
    leases?: Extended[];
    stale?: number;
    /** Some problems have more fields. */
    [field: string]: unknown;
}

export interface Delta<T> {
    type: DeltaType;
    resource_version: bigint;
    queued_at: Timestamp;
    object: T;
    final_state_unknown?: boolean;
    source?: string;
    coalesced?: number;
    traceparent?: string;
}

export interface Lease {
    id: string;
    /** The fencing token: it grows with every lease of the queue. */
    token: bigint;
    worker: string | null;
    expires_at: Timestamp;
    expires_in_ms: number;
}

/** A delivered key. */
export interface PoppedItem<T> {
    key: string;
    lease: Lease;
    attempt: number;
    failures: number;
    is_in_initial_list: boolean;
    /** Every change since the last ack, oldest first. Mode events has the oldest alone, mode keys has none. */
    deltas: Delta<T>[];
    /** With `with: "known"`: the object that was acknowledged last. */
    known?: T;
}

export interface Popped<T> {
    items: PoppedItem<T>[];
    settled: Settled[];
    closed?: boolean;
    paused?: boolean;
}

/** A lease to settle. */
export interface Settle {
    lease_id: string;
    as: SettleAs;
    /** Of a nack or done. */
    delay?: Duration;
    /** Of a nack or reject. */
    error?: string;
}

export interface Settled {
    lease_id: string;
    as: SettleAs;
    result: Open<"ok" | "repeated" | "stale">;
    outcome?: LeaseOutcome;
    failures?: number;
    due_at?: Timestamp;
    parked?: boolean;
}

export interface SettledList {
    settled: Settled[];
    stale: number;
}

export interface Extended {
    lease_id: string;
    result: Open<"ok" | "stale">;
    expires_at?: Timestamp;
    expires_in_ms?: number;
    pending_deltas?: number;
    deleted?: boolean;
    outcome?: LeaseOutcome;
}

export interface ExtendedList {
    leases: Extended[];
    stale: number;
}

/** The reply to a produce call. */
export interface Produced {
    resource_version: bigint;
    queued: number;
    ignored: number;
    stale?: number;
    duplicate?: boolean;
    keys?: { key: string; failures: number; due_at: Timestamp | null; parked: boolean }[];
}

export interface ReplaceCounts {
    replaced: number;
    deleted: number;
    unchanged: number;
    skipped: number;
    taken_over: number;
    stale?: number;
}

export interface Replaced extends ReplaceCounts {
    resource_version: bigint;
    queued: number;
    ignored: number;
    duplicate?: boolean;
}

/** An entry of a mixed batch. */
export interface DeltaCall<T> {
    type: "Added" | "Updated" | "Deleted";
    key?: string;
    object?: T;
    source?: string;
    delay?: Duration;
    final_state_unknown?: boolean;
}

/** An object that becomes known without a delta. */
export interface SeedCall<T> {
    key?: string;
    source?: string;
    object: T;
}

/** A page of a list. */
export interface Page<Item> {
    items: Item[];
    continue: string | null;
    resource_version: bigint;
}

/** An object of a view. */
export interface ObjectDocument<T> {
    key: string;
    source?: string;
    resource_version: bigint;
    object: T;
}

/** A key with waiting or leased deltas. */
export interface Item<T> {
    key: string;
    /** Null for a key that has only failures. */
    state: Open<ItemState> | null;
    deltas: Delta<T>[];
    leased_deltas: Delta<T>[];
    lease: Lease | null;
    attempt: number;
    failures: number;
    last_error: string | null;
    due_at: Timestamp | null;
    owner: string | null;
}

export interface Explanation {
    key: string;
    reason: Open<"leased" | "delayed" | "backing_off" | "parked" | "paused" | "closed" | "queued" | "next" | "nothing_waits" | "unknown">;
    explanation: string;
    lease: Lease | null;
    due_at: Timestamp | null;
    failures: number;
    last_error: string | null;
    ahead: number | null;
    has_more_ahead: boolean;
}

/** The parked keys of a queue by their errors. */
export interface ParkedErrors {
    /** An empty `error` means keys without one. */
    items: { error: string; keys: number; first_key: string }[];
    other_keys: number;
    resource_version: bigint;
}

/** An entry of the history of a key. */
export interface HistoryEvent<T> {
    resource_version: bigint;
    at: Timestamp;
    event: string;
    type?: DeltaType;
    object?: T;
    source?: string;
    owner?: string;
    final_state_unknown?: boolean;
    traceparent?: string;
    lease_id?: string;
    worker?: string;
    expires_at?: Timestamp;
    outcome?: LeaseOutcome;
    error?: string;
    parked?: boolean;
    due_at?: Timestamp;
}

export interface LastReplace {
    source: string | null;
    counts: ReplaceCounts;
    started: Timestamp;
    ended: Timestamp | null;
    aborted: boolean;
}

export interface SourceDocument {
    source: string;
    keys: number;
    last_call_at: Timestamp | null;
    last_replaced_at: Timestamp | null;
    last_replace: LastReplace | null;
    sequence: bigint | null;
}

export interface WorkerDocument {
    worker: string | null;
    leased: number;
    oldest_leased_at: Timestamp | null;
    next_expires_at: Timestamp | null;
    next_expires_in_ms: number | null;
    waiting: number;
    waiting_since: Timestamp | null;
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
    reached?: boolean;
    resource_version?: bigint;
    parked?: number;
}

/** A row of a watch: a change of a key, or a message about the watch. */
export interface WatchRow<T> {
    type: Open<"Added" | "Updated" | "Deleted" | "Bookmark" | "Error">;
    /** Absent in `Bookmark` and `Error`. */
    key?: string;
    resource_version?: bigint;
    object?: T;
    source?: string;
    final_state_unknown?: boolean;
    initial_events_end?: boolean;
    problem?: Problem;
}

export interface RateLimiter {
    item_exponential?: { base: Duration; max: Duration };
    item_fast_slow?: { fast: Duration; slow: Duration; max_fast: number };
    bucket?: { qps: number; burst: number };
    max_wait?: Duration;
    jitter?: number;
}

export interface Follow {
    queue: string;
    view?: View;
    prefix?: string;
    max_waiting?: number;
}

/** The settings of a queue. */
export interface QueueConfig {
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
    retention: { age?: Duration; bytes?: number };
    prune: string[];
    version?: string;
    resync_period?: Duration;
    max_delete_percent?: number;
    max_deletes?: number;
    follow?: Follow;
    schema?: unknown;
    indexes?: Record<string, string>;
}

/** Changes of the settings of a queue; null resets a setting. */
export type QueuePatch = { [Name in keyof Omit<QueueConfig, "key">]?: QueueConfig[Name] | null } & {
    key?: QueueConfig["key"] | string | null;
};

export interface QueueStatus {
    ready: number;
    delayed: number;
    leased: number;
    parked: number;
    known: number;
    waiters: number;
    has_synced: boolean;
    initial_remaining: number;
    resource_version: bigint;
    oldest_ready_age_ms: number;
    oldest_unacknowledged_age_ms: number;
    paused: boolean;
    closed: boolean;
    drained: boolean;
    building_indexes: string[];
    last_replace: LastReplace | null;
    followers: string[];
    follow?: {
        state: Open<"listing" | "following" | "blocked" | "waiting">;
        resource_version: bigint | null;
        lag_events: number;
        lag_ms: number;
        detail?: string;
    };
}

export interface QueueDocument {
    name: string;
    incarnation: string;
    auto_created: boolean;
    created_at: Timestamp;
    config: QueueConfig;
    status: QueueStatus;
    drained?: boolean;
}

export interface QueuePage extends Page<QueueDocument> {
    unavailable: { name: string; code: string; detail: string }[];
}

export interface Info {
    name: string;
    version: string;
    durability: string;
    store: { kind: string; replicated?: boolean };
    uptime_ms: number;
    limits: Record<string, number | string>;
}
