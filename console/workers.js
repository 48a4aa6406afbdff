// The workers of all queues: which one hangs?

import { get } from "./api.js";
import { count, counted, foreign, h, show, span } from "./dom.js";
import { searchPage } from "./page.js";
import { toKeys, toQueue } from "./routes.js";
import { state } from "./states.js";
import { pill, textCell } from "./table.js";

const SHOWN = 500;
const COLUMNS = [
  { title: "Worker" }, { title: "Queue" }, { title: "State" }, { title: "Leases", isNumber: true }, { title: "Oldest lease", label: "Oldest", isNumber: true },
  { title: "Old after", isNumber: true }, { title: "Next expiry", isNumber: true }, { title: "Waiting pops", isNumber: true },
];
const OLD = "A lease is old if it has lasted longer than the setting lease, and 10 times the mean of the last leases of its queue.";

const wordOf = (worker) => (worker.is_slow ? "old lease" : worker.leased > 0 ? "works" : "waits for keys");

export function workerName(worker) {
  return worker === null ? h("span", { class: "muted" }, "without a name") : foreign(worker);
}

function createRow(worker) {
  const names = ["leased", "oldest", "limit", "expiry", "waiting"];
  const cells = Object.fromEntries(names.map((name) => [name, textCell("td", { class: "number" })]));
  const word = h("td");
  const update = (now) => {
    show(word, pill(wordOf(now), now.is_slow, now.leased > 0));
    cells.leased.set(count(now.leased));
    show(cells.oldest.element, now.oldest_lease_age_ms === null ? "–" : h("span", { class: now.is_slow ? "alarm" : null, title: now.oldest_leased_at }, span(now.oldest_lease_age_ms)));
    cells.limit.set(now.leased > 0 ? span(now.slow_after_ms) : "–");
    cells.expiry.set(now.next_expires_in_ms === null ? "–" : span(now.next_expires_in_ms));
    cells.waiting.set(count(now.waiting));
  };
  update(worker);
  const link = h("a", { class: "row", href: toKeys(worker.queue, { state: "leased", worker: worker.worker }) }, workerName(worker.worker));
  return { element: h("tr", null, h("th", { scope: "row" }, link), h("td", null, h("a", { class: "plain", href: toQueue(worker.queue) }, foreign(worker.queue))), word, names.map((name) => cells[name].element)), update };
}

export function workersView(context) {
  searchPage(context, {
    what: "the workers", noun: "worker", columns: COLUMNS, create: createRow, keyOf: (worker) => `${worker.worker ?? ""}\n${worker.queue}`,
    read: async () => {
      const { workers, left_out: leftOut, unavailable } = await get("v1/workers", { query: { limit: SHOWN }, signal: context.signal });
      return { items: workers, unavailable, hasMore: leftOut > 0 };
    },
    isWrong: (worker) => worker.is_slow, wrongText: "Old leases", explains: OLD,
    sentenceOf: (all) => {
      const old = all.filter((worker) => worker.is_slow).length;
      const leases = all.reduce((sum, worker) => sum + worker.leased, 0);
      return old > 0 ? [`${counted(old, "worker")} ${old === 1 ? "has" : "have"} a lease that is old for its queue.`, true] : [`${counted(all.length, "worker")} with ${counted(leases, "lease")}. None is old for its queue.`, false];
    },
    empty: () => state("empty", "No worker is there", "No worker holds a lease or waits for keys. Workers appear here when they pop."),
  });
}
