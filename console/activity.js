// What callers have done to queues: who paused, purged, redrove or configured what.

import { get } from "./api.js";
import { now } from "./clock.js";
import { announce, counted, foreign, h, seen, show, time } from "./dom.js";
import { toKey, toQueue } from "./routes.js";
import { failure, loading, state } from "./states.js";
import { cell, nothing, plainTable } from "./table.js";

const PAGE = 100;
const TYPING_MS = 300;
/** Members of an entry that have a column of their own. */
const COLUMNS = ["at", "token", "operation", "queue", "key", "detail", "request_id", "outcome", "status"];

/** The rest of an entry as words: keys=3, error="no route". */
function detailOf(entry) {
  const words = [];
  if (typeof entry.detail === "string") words.push(entry.detail);
  const rest = { ...(typeof entry.detail === "object" ? entry.detail : {}), ...Object.fromEntries(Object.entries(entry).filter(([name]) => !COLUMNS.includes(name))) };
  for (const [name, value] of Object.entries(rest)) {
    if (value !== null && value !== undefined && value !== "") words.push(`${name}=${typeof value === "string" ? value : JSON.stringify(value)}`);
  }
  return words.join(", ");
}

function row(entry) {
  const detail = detailOf(entry);
  const isRefused = entry.outcome && entry.outcome !== "ok";
  return h("tr", null,
    h("th", { scope: "row" }, time(entry.at)),
    cell("Token", entry.token ? foreign(entry.token) : h("span", { class: "muted" }, "no token")),
    cell("Operation", h("code", null, seen(entry.operation)), isRefused && [" ", h("span", { class: "alarm" }, seen(entry.outcome))]),
    cell("Queue", entry.queue ? h("a", { class: "row", href: toQueue(entry.queue) }, foreign(entry.queue)) : "–"),
    h("td", { class: "long error-text", "data-label": "Detail" }, entry.queue && entry.key ? [h("a", { href: toKey(entry.queue, entry.key) }, foreign(entry.key, "key")), " "] : null, detail === "" ? nothing() : seen(detail)));
}

export function activityView({ body, query, signal, setQuery, reload }) {
  const present = { ...query };
  let typing = null;
  let reading = new AbortController();
  let rows = null;
  const found = h("p", { class: "found", role: "status" });
  const list = h("div");
  const more = h("button", { type: "button", hidden: true }, "Older entries");
  const again = h("button", { type: "button", class: "quiet", onclick: () => read(null) }, "Read again");
  const field = (name, text, isFind) => {
    const input = h("input", { type: "search", "data-find": isFind, placeholder: text, "aria-label": text, value: present[name] ?? "", spellcheck: "false", oninput: () => {
      present[name] = input.value || null;
      setQuery(present);
      clearTimeout(typing);
      typing = setTimeout(() => read(null), TYPING_MS);
    } });
    return input;
  };
  const bar = h("div", { class: "bar" }, field("queue", "Queue", true), field("token", "Token"), field("operation", "Operation, such as purge_queue"));
  signal.addEventListener("abort", () => { clearTimeout(typing); reading.abort(); }, { once: true });

  async function read(before) {
    reading.abort();
    reading = new AbortController();
    more.hidden = true;
    if (before === null) show(list, loading("Reading the activity"));
    try {
      const { queue, token, operation } = present;
      const page = await get("v1/activity", { query: { queue: queue || null, token: token || null, operation: operation || null, before, limit: PAGE }, signal: AbortSignal.any([signal, reading.signal]) });
      if (before === null) {
        const shown = plainTable("Activity", [["At"], ["Token"], ["Operation"], ["Queue"], ["Detail"]], []);
        rows = shown.querySelector("tbody");
        show(list, shown);
      }
      rows.append(...page.entries.map(row));
      const isFiltered = queue || token || operation;
      if (rows.childElementCount === 0) show(list, isFiltered ? state("empty", "No entry matches", "No call that is remembered has this queue, token and operation.") : state("empty", "Nothing has been changed yet", "Calls that change or delete queues, and settings, appear here."));
      more.hidden = !page.next;
      more.onclick = () => read(page.next);
      show(found, `${counted(rows.childElementCount, "entry", "entries")}${page.next ? ", and there are older ones" : ""}, as of `, time(new Date(now()).toISOString()));
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
