/** Client, Worker and Informer for deltaq. */

export { Client } from "./client.js";
export type * from "./documents.js";
export type { Duration } from "./duration.js";
export { CallAborted, ConnectionError, DeltaqError } from "./error.js";
export { Informer, type InformerOptions, waitForCacheSync } from "./informer.js";
export { isDeleted, newest } from "./item.js";
export { type Context, LeaseLost } from "./leases.js";
export { List } from "./list.js";
export { DeletedFinalStateUnknown, type Registration, type ResourceEventHandler, type Syncable } from "./listener.js";
export type { Middleware } from "./middleware.js";
export type { Logger } from "./notices.js";
export type { Objects } from "./objects.js";
export type * from "./options.js";
export { Ack, Done, Nack, type Outcome, Reject, Release } from "./outcome.js";
export { type LeaseIds, Queue, type Selection } from "./queue.js";
export type { RetryChanges, RetryOptions } from "./retry.js";
export type { Indexes, IndexFunc, ReadStore } from "./store.js";
export type { CallOptions, ClientOptions, Invoke, InvokedCall } from "./transport.js";
export type { WatchTransport } from "./watcher.js";
export { type BatchHandler, type Delivery, type Handler, type Pause, type Work, Worker, type WorkerOptions } from "./worker.js";
