// The workers of all queues: which one hangs?

import { get } from "./api.js";
import { are, count, counted, foreign, h, muted, span } from "./dom.js";
import { searchPage } from "./page.js";
import { toKeys, toQueue } from "./routes.js";
import { state } from "./states.js";
import { pill } from "./table.js";

const SHOWN = 500;
const EXPLAINS = "A lease is old if it has lasted longer than the setting lease, and 10 times the mean of the last leases of its queue. Acks and failures are those of the last ten minutes.";

/** Columns of lists over all queues. */
export const QUEUE = ["Queue", ({ queue }) => h("a", { class: "plain", href: toQueue(queue) }, foreign(queue))];
export const SOURCE = ["Source", ({ queue, source }) => [toKeys(queue, { state: "latest", source }), foreign(source)]];
export const WORKER = ["Worker", ({ queue, worker }) => [toKeys(queue, { state: "leased", worker }), worker === null ? muted("without a name") : foreign(worker)]];

const COLUMNS = [
  WORKER,
  QUEUE,
  ["State", (one) => pill(one.is_slow ? "old lease" : one.leased > 0 ? "works" : "waits for keys", one.is_slow, one.leased > 0)],
  ["Leases", (one) => count(one.leased), "number"],
  ["Oldest", (one) => one.leased > 0 && h("span", { class: one.is_slow ? "alarm" : null }, span(one.oldest_lease_age_ms)), "number"],
  ["Old after", (one) => (one.leased > 0 ? span(one.slow_after_ms) : null), "number"],
  ["Expires in", (one) => (one.leased > 0 ? span(one.next_expires_in_ms) : null), "number"],
  ["Waiting pops", (one) => count(one.waiting), "number"],
  ["Acks", (one) => count(one.recent_acks), "number"],
  ["Failures", (one) => h("span", { class: one.recent_failures > 0 ? "alarm" : null }, count(one.recent_failures)), "number"],
];

export function workersView(context) {
  searchPage(context, {
    what: "the workers", noun: "worker", columns: COLUMNS, textOf: (one) => `${one.worker ?? ""}\n${one.queue}`,
    read: async () => {
      const { workers, left_out: leftOut, unavailable } = await get("v1/workers", { query: { limit: SHOWN }, signal: context.signal });
      return { items: workers, unavailable, hasMore: leftOut > 0 };
    },
    isWrong: (one) => one.is_slow, wrongText: "Old leases", explains: EXPLAINS,
    sentenceOf: (all, old) => {
      if (old.length > 0) return `${counted(old.length, "worker")} ${are(old.length, "has", "have")} a lease that is old for its queue.`;
      return `${counted(all.length, "worker")} with ${counted(all.reduce((sum, one) => sum + one.leased, 0), "lease")}. None is old for its queue.`;
    },
    empty: () => state("empty", "No worker is there", "No worker holds a lease or waits for keys. Workers appear here when they pop."),
  });
}
