// What callers have done to queues: who paused, purged, redrove or configured what.

import { get } from "./api.js";
import { now } from "./clock.js";
import { announce, count, counted, foreign, h, muted, searchField, seen, show, time } from "./dom.js";
import { toQueue } from "./routes.js";
import { failure, loading, state } from "./states.js";
import { listTable } from "./table.js";

const PAGE = 100;
const TYPING_MS = 300;
const COLUMNS = [
  ["At", (entry) => [time(entry.at)]],
  ["Token", (entry) => (entry.by ? foreign(entry.by) : muted("no token"))],
  ["Operation", (entry) => [h("code", null, seen(entry.operation)), entry.outcome && entry.outcome !== "ok" && [" ", h("span", { class: "alarm" }, seen(entry.outcome))]], "long"],
  ["Queue", (entry) => entry.queue && h("a", { class: "row", href: toQueue(entry.queue) }, foreign(entry.queue))],
  ["Keys", (entry) => entry.keys !== null && count(entry.keys), "number"],
];

export function activityView({ body, query, signal, setQuery, reload }) {
  const present = { ...query };
  let typing = null;
  let reading = new AbortController();
  let rows = null;
  let total = 0;
  const found = h("p", { class: "found", role: "status" });
  const list = h("div");
  const more = h("button", { type: "button", hidden: true }, "Older entries");
  const again = h("button", { type: "button", class: "quiet", onclick: () => read(null) }, "Read again");
  const field = (name, text, properties) => {
    const input = searchField(text, present[name], () => {
      present[name] = input.value || null;
      setQuery(present);
      clearTimeout(typing);
      typing = setTimeout(() => read(null), TYPING_MS);
    }, properties);
    return input;
  };
  const bar = h("div", { class: "bar" }, field("queue", "Queue", { "data-find": true }), field("by", "Token"), field("operation", "Operation, such as purge_queue"));
  signal.addEventListener("abort", () => { clearTimeout(typing); reading.abort(); }, { once: true });

  async function read(next) {
    reading.abort();
    reading = new AbortController();
    more.hidden = true;
    if (next === null) show(list, loading("Reading the activity"));
    try {
      const { queue, by, operation } = present;
      const page = await get("v1/activity", { query: { queue: queue || null, by: by || null, operation: operation || null, continue: next, limit: PAGE }, signal: AbortSignal.any([signal, reading.signal]) });
      if (next === null) {
        rows = listTable("Activity", COLUMNS, []);
        total = 0;
        show(list, rows.element);
      }
      rows.add(page.items);
      total += page.items.length;
      const isFiltered = queue || by || operation;
      if (total === 0) show(list, isFiltered ? state("empty", "No entry matches", "No call that is remembered has this queue, token and operation.") : state("empty", "No call is remembered", "Calls that change or delete queues, and settings, appear here."));
      more.hidden = !page.continue;
      more.onclick = () => read(page.continue);
      const missing = page.missing_nodes ?? [];
      show(found, missing.length > 0 && `Without calls on ${missing.join(", ")}. `, `${counted(total, "entry", "entries")}${page.continue ? ", and there are older ones" : ""}, as of `, time(new Date(now()).toISOString()));
      announce(found.textContent);
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      show(found);
      if (error.status === 404 && error.code === "not-found") show(list, state("empty", "This server does not keep the activity", "Its audit log has the calls."));
      else show(list, failure(error, reload));
    }
  }
  show(body, bar, h("div", { class: "snapshot" }, found, again), list, h("p", null, more));
  read(null);
}
