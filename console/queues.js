// All queues: which one needs attention?

import { get } from "./api.js";
import { ago, announce, button, compact, count, counted, foreign, h, rate, searchField, setText, show, span } from "./dom.js";
import { TITLES } from "./flow.js";
import { listPage } from "./page.js";
import { toKeys, toParked, toQueue } from "./routes.js";
import { seriesSection } from "./series.js";
import { newQueue } from "./create.js";
import { state } from "./states.js";
import { number, table, textCell } from "./table.js";

/** Rows that are shown at a time. */
const PAGE = 100;
/** How long the first view waits for its charts, in ms, so that they do not move it later. */
const CHARTS_WAIT = 500;
const PAGE_OF_API = 5000;
/** The time between two reads: longer on servers with many queues. */
const every = (queues) => (queues > 2000 ? 10_000 : queues > 200 ? 4000 : 2000);

/** The states whose counts are columns. */
const STATES = Object.keys(TITLES);

const ORDERS = {
  __proto__: null,
  ...Object.fromEntries(STATES.map((state) => [state, (a, b) => a.status[state] - b.status[state]])),
  name: (a, b) => (a.name < b.name ? -1 : 1),
  age: (a, b) => a.status.oldest_unacknowledged_age_ms - b.status.oldest_unacknowledged_age_ms,
  rate: (a, b) => (a.rate ?? -1) - (b.rate ?? -1),
};

const COLUMNS = [
  { title: "Queue", sort: "name" },
  ...STATES.map((state) => ({ title: TITLES[state], sort: state, isNumber: true })),
  { title: "Oldest change", label: "Oldest", sort: "age", isNumber: true },
  { title: "Changes in/s", sort: "rate", isNumber: true },
  { title: "Last list" },
  { title: "Sync" },
];

async function readAll(signal) {
  const queues = [];
  const unavailable = [];
  let next = null;
  do {
    const page = await get("v1/queues", { query: { limit: PAGE_OF_API, continue: next, fields: "name,life,status" }, signal });
    queues.push(...page.items);
    unavailable.push(...(page.unavailable ?? []));
    next = page.continue;
  } while (next);
  return { queues, unavailable };
}

/** Changes per second since a sample; null in a new life, which counts anew. */
export function rateOf(sample, { life, status }, at) {
  return sample?.life === life ? (status.changes - sample.changes) / ((at - sample.at) / 1000) : null;
}

/** Remembers the counts of changes of the queues, from which the rates come. */
class Rates {
  #samples = new Map();

  add(queues) {
    const at = performance.now();
    const samples = new Map();
    for (const queue of queues) {
      queue.rate = rateOf(this.#samples.get(queue.name), queue, at);
      samples.set(queue.name, { life: queue.life, changes: queue.status.changes, at });
    }
    this.#samples = samples;
  }
}

export const isHeld = ({ follow }) => follow?.state === "blocked" || follow?.state === "waiting";

export const isBroken = ({ push }) => Boolean(push) && push.state !== "sending";

/** Whether a queue needs attention. */
const isTrouble = ({ status }) => status.parked > 0 || status.paused || (status.closed && !status.drained) || isHeld(status) || isBroken(status) || status.hook?.kept > 0 || status.last_replace?.aborted === true
  || (status.ready > 0 && status.leased === 0 && status.waiters === 0);
const TROUBLE = "Parked keys, ready keys without a worker, a queue that is paused or closed, a follower that can't go on, an endpoint that fails, deliveries that could not be applied, a list that was cut off";

export function badges(status) {
  const words = [
    status.paused && ["paused", "warn"],
    status.held_until && ["held", "warn"],
    status.drained ? ["drained", ""] : status.closed && ["closed", "warn"],
    status.follow && [status.follow.state === "following" ? "follower" : `follower, ${status.follow.state}`, isHeld(status) ? "warn" : ""],
    status.push && [`pushes, ${status.push.state}`, isBroken(status) ? "warn" : ""],
    status.hook && [status.hook.kept > 0 ? `hook, ${count(status.hook.kept)} kept` : "hook", status.hook.kept > 0 ? "warn" : ""],
    status.followers.length > 0 && [counted(status.followers.length, "follower"), ""],
    status.building_indexes.length > 0 && ["builds an index", ""],
    status.building_groups && ["moves keys to their groups", ""],
  ];
  return words.filter(Boolean).map(([text, kind]) => h("span", { class: `badge ${kind}` }, text));
}

function syncText(status) {
  if (status.has_synced) return "synced";
  return status.initial_remaining === 0 ? "–" : `${count(status.initial_remaining)} to go`;
}

/** A count of keys, which leads to them. */
function countCell(queue, state) {
  const element = number();
  const isParked = state === "parked";
  const link = h("a", { class: isParked ? "alarm" : "plain", href: isParked ? toParked(queue) : toKeys(queue, { state }) });
  let shown = null;
  const set = (value) => {
    if (value === shown) return;
    setText(link, compact(value));
    link.setAttribute("aria-label", `${count(value)} ${state}`);
    if (shown === null || (value === 0) !== (shown === 0)) show(element, value === 0 ? "0" : link);
    element.classList.toggle("muted", value === 0);
    shown = value;
  };
  return { element, set };
}

function createRow(queue) {
  const mine = h("span", { class: "badges" });
  const cells = Object.fromEntries(["age", "rate", "sync"].map((name) => [name, textCell("td", { class: name === "sync" ? "muted" : "number" })]));
  const counts = Object.fromEntries(STATES.map((state) => [state, countCell(queue.name, state)]));
  const list = h("td", { class: "muted" });
  let shown = null;
  const update = (now) => {
    const { status } = now;
    for (const state of STATES) counts[state].set(status[state]);
    cells.age.set(status.oldest_unacknowledged_age_ms > 0 ? span(status.oldest_unacknowledged_age_ms) : "–");
    cells.rate.set(rate(now.rate));
    cells.sync.set(syncText(status));
    const words = badges(status);
    const text = words.map((word) => word.textContent).join();
    if (shown !== text) show(mine, words);
    shown = text;
    const last = status.last_replace;
    show(list, last?.aborted ? h("span", { class: "alarm" }, "cut off") : last?.ended_at ? [last.source ? [foreign(last.source), " "] : null, ago(last.ended_at)] : last ? "running" : "–");
  };
  update(queue);
  const name = h("th", { scope: "row" }, h("a", { class: "row", href: toQueue(queue.name) }, foreign(queue.name)), " ", mine);
  const element = h("tr", null, name, STATES.map((state) => counts[state].element), cells.age.element, cells.rate.element, list, cells.sync.element);
  return { element, update };
}

const totals = (queues) => STATES.map((state) => [TITLES[state], queues.reduce((sum, { status }) => sum + status[state], 0)]);

export async function queuesView({ body, query, signal, setQuery, reload }) {
  let present = { ...query };
  let shownRows = PAGE;
  let all = [];
  const rates = new Rates();
  const find = searchField("Find a queue", present.find, () => change({ find: find.value || null }, false), { "data-find": true });
  const only = h("input", { type: "checkbox", checked: present.only === "trouble", onchange: () => change({ only: only.checked ? "trouble" : null }, true) });
  const sum = h("dl", { class: "sums" });
  const series = seriesSection({ path: "v1/series", range: present.range, onRange: (range) => change({ range: range === "1h" ? null : range }, true), signal, isCompact: true });
  const create = button("New queue…", newQueue);
  const found = h("p", { class: "muted" });
  const more = button("Show more", () => { shownRows += PAGE; render(); });
  const rows = table({
    caption: "Queues", columns: COLUMNS, create: createRow, keyOf: (queue) => queue.name,
    onSort: (name) => {
      const isSame = (present.sort ?? "name") === name;
      const descending = isSame ? present.order !== "desc" : name !== "name";
      change({ sort: name, order: descending ? "desc" : null }, true);
    },
  });
  const wrapped = h("div", { class: "scroll" }, rows.element);
  const none = h("div", { hidden: true });

  function change(values, isStep) {
    present = { ...present, ...values };
    setQuery(present, isStep);
    shownRows = PAGE;
    render();
    announce(found.textContent);
  }

  function render() {
    const text = (present.find ?? "").toLowerCase();
    const order = ORDERS[present.sort] ?? ORDERS.name;
    const wanted = all.filter((queue) => queue.name.includes(text) && (present.only !== "trouble" || isTrouble(queue)));
    wanted.sort((a, b) => order(a, b) * (present.order === "desc" ? -1 : 1) || ORDERS.name(a, b));
    rows.update(wanted.slice(0, shownRows));
    wrapped.hidden = wanted.length === 0;
    none.hidden = wanted.length > 0;
    if (!none.hidden) show(none, present.find ? state("empty", "No queue matches", ["No name contains ", foreign(present.find), present.only === "trouble" ? ", among the queues that need attention." : "."]) : state("empty", "No queue needs attention", `${TROUBLE}: there are none.`));
    rows.mark(present.sort in ORDERS ? present.sort : "name", present.order === "desc");
    more.hidden = wanted.length <= shownRows;
    setText(found, wanted.length === all.length ? counted(all.length, "queue") : `${count(wanted.length)} of ${counted(all.length, "queue")}`);
    show(sum, totals(wanted).map(([name, value]) => h("div", { class: name === "Parked" && value > 0 ? "alarm" : null }, h("dt", null, name), h("dd", null, compact(value)))));
  }

  let isRead = false;
  const chartsAreShown = Promise.race([series.isShown, new Promise((resolve) => { setTimeout(resolve, CHARTS_WAIT); })]);
  listPage({ body, signal, reload }, {
    every: () => every(all.length), what: "the queues",
    content: [sum, series.element, h("div", { class: "bar" }, find, h("label", { class: "check", title: TROUBLE }, only, "Needs attention"), create, found), wrapped, none, h("p", null, more)],
    read: async () => {
      const [read] = await Promise.all([readAll(signal), isRead ? null : chartsAreShown]);
      isRead = true;
      return read;
    },
    update: ({ queues }) => {
      rates.add(queues);
      all = queues;
      if (queues.length === 0) return state("empty", "There is no queue yet", "The first object creates its queue. Queues that your token may not read are not listed.", h("code", { class: "block" }, `deltaq add prices '{"key":"sku-1","price":10}'`), create);
      render();
      return null;
    },
  });
}
