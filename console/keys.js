// The keys of a queue: find one by its start, state, source or index.

import { get, may, queuePath, whoami } from "./api.js";
import { bulkBar } from "./bulk.js";
import { now } from "./clock.js";
import { announce, count, counted, foreign, h, searchField, show, time } from "./dom.js";
import { toKey, toPage, toParked } from "./routes.js";
import { backoff, isPassing, reporter } from "./live.js";
import { failure, loading, stale, state } from "./states.js";
import { listTable } from "./table.js";

const PAGE = 100;
/** Most empty pages that are read in a row: a filter may match few keys. */
const EMPTY_PAGES = 20;
const TYPING_MS = 200;

const STATES = [
  ["pending", "Pending"], ["ready", "Ready"], ["delayed", "Delayed"], ["leased", "Leased"], ["parked", "Parked"],
  ["latest", "All objects"], ["known", "Acknowledged"],
];
const ITEM_FIELDS = "key,state,lease,failures,last_error,due_at,source";
const OBJECT_FIELDS = "key,source,resource_version";
const isView = (name) => name === "latest" || name === "known";

/** The call for a page of the keys that a query selects. */
function pageOf(queue, query, next) {
  const common = { prefix: query.find, source: query.source || null, limit: PAGE, continue: next };
  if (query.index && query.value) return [queuePath(queue, "known"), { ...common, index: query.index, value: query.value, wait: "10s", fields: OBJECT_FIELDS }];
  if (isView(query.state)) return [queuePath(queue, query.state), { ...common, fields: OBJECT_FIELDS }];
  return [queuePath(queue, "items"), { ...common, state: query.state === "pending" ? null : query.state, error: query.error, worker: query.worker, fields: ITEM_FIELDS }];
}

/** What a key waits for, in a few words. */
function waitsFor(item) {
  if (item.state === "leased") return [item.lease.worker ? foreign(item.lease.worker) : "a worker", ", until ", time(item.lease.expires_at)];
  if (item.state === "delayed") return ["until ", time(item.due_at)];
  return item.state === "parked" ? "a redrive or a new change" : "a worker";
}

const key = (queue) => ["Key", (item) => [toKey(queue, item.key), foreign(item.key, "key")]];
const sourceOf = ({ source }) => (source ? foreign(source) : null);

const itemColumns = (queue) => [
  key(queue),
  ["State", (item) => h("span", { class: `pill ${item.state}` }, item.state), "long"],
  ["Failures", (item) => count(item.failures), "number"],
  ["Waits for", waitsFor, "long"],
  ["Source", sourceOf, "long"],
  ["Last error", (item) => (item.last_error === null ? null : foreign(item.last_error)), "error"],
];
const objectColumns = (queue) => [key(queue), ["Source", sourceOf], ["Changed by event", (object) => String(object.resource_version), "number"]];

export async function keysView({ queue, body, query, signal, setQuery }) {
  // A worker holds leased keys, and an index has acknowledged ones: a link with another state must not offer an action on all keys of it.
  const present = { ...query, state: query.index && query.value ? "known" : query.worker ? "leased" : query.state || "pending" };
  const report = reporter(signal);
  let reading = new AbortController();
  let typing = null;
  const list = h("div");
  const strip = h("div");
  const found = h("p", { class: "found", role: "status" });
  const more = h("button", { type: "button", hidden: true }, "Show more");

  const change = (values, isStep) => {
    Object.assign(present, values);
    // The fields show what is listed.
    states.value = present.index ? "known" : present.state;
    index.value = present.index ?? "";
    value.value = present.value ?? "";
    setQuery({ ...present, state: present.state === "pending" ? null : present.state }, isStep);
    clearTimeout(typing);
    typing = setTimeout(read, isStep ? 0 : TYPING_MS);
  };
  const find = searchField("Start of the key", present.find, () => { change({ find: find.value || null }); goTo.disabled = find.value === ""; }, { "data-find": true });
  const source = searchField("Source", present.source, () => change({ source: source.value || null }));
  const states = h("select", { "aria-label": "State", onchange: () => change({ state: states.value, error: null, worker: null, index: null, value: null }, true) }, STATES.map(([value, text]) => h("option", { value }, text)));
  states.value = present.state;
  const index = h("select", { "aria-label": "Index", onchange: () => change({ index: index.value || null, value: index.value ? value.value || null : null, state: "known" }, true) }, h("option", { value: "" }, "No index"));
  const value = h("input", { type: "search", placeholder: "Value", "aria-label": "Value of the index", value: present.value ?? "", oninput: () => change({ value: value.value || null }) });
  const byIndex = h("span", { class: "group", hidden: true }, index, value);
  const goTo = h("button", { type: "submit", disabled: find.value === "" }, "Open this key");
  const again = h("button", { type: "button", class: "quiet", onclick: () => read() }, "Read again");
  const form = h("form", { class: "bar", role: "search", onsubmit: (event) => {
    event.preventDefault();
    // Enter in another field opens nothing.
    if (find.value !== "" && ![source, value].includes(document.activeElement)) location.hash = toKey(queue, find.value);
  } }, find, states, source, byIndex, goTo);
  const errorNote = h("p", { class: "note", hidden: true });
  const bulk = h("div");
  show(body, form, errorNote, strip, h("div", { class: "snapshot" }, found, again), bulk, list, h("p", null, more));

  get(queuePath(queue, "indexes"), { signal }).then(({ items }) => {
    byIndex.hidden = items.length === 0;
    index.append(...items.map((one) => h("option", { value: one.name }, one.name)));
    index.value = present.index ?? "";
  }, () => {});

  let rows = null;
  let total = 0;
  let failures = 0;
  let isPermitted = false;
  let readAt = null;

  async function readPage(from, isFirst) {
    reading.abort();
    reading = new AbortController();
    const either = AbortSignal.any([signal, reading.signal]);
    let page;
    let pages = 0;
    more.hidden = true;
    do {
      const [path, parameters] = pageOf(queue, present, page ? page.continue : from);
      page = await get(path, { query: parameters, signal: either });
      pages += 1;
    } while (page.items.length === 0 && page.continue && pages < EMPTY_PAGES);
    failures = 0;
    report();
    show(strip);
    const isObjects = isView(present.state) || (present.index && present.value);
    if (isFirst) {
      total = 0;
      rows = listTable("Keys", (isObjects ? objectColumns : itemColumns)(queue), []);
      show(list, rows.element);
    }
    rows.add(page.items);
    total += page.items.length;
    if (total === 0 && !page.continue) show(list, empty());
    more.hidden = !page.continue;
    more.onclick = () => next(page.continue, false);
    const isFiltered = page.continue && page.items.length === 0;
    const keys = isFiltered ? `${counted(total, "key")} so far; there are more to search` : `${counted(total, "key")}${page.continue ? ", and there are more" : ""}`;
    if (isFirst) readAt = new Date(now()).toISOString();
    show(found, keys, ", as of ", time(readAt));
    announce(found.textContent);
  }

  /** The empty list: nothing is there, or nothing matches. */
  function empty() {
    const hasFilter = present.find || present.source || present.worker || typeof present.error === "string" || present.value;
    if (!hasFilter && present.state === "pending") return state("empty", "Nothing waits", "Every change is acknowledged.", h("button", { type: "button", onclick: () => change({ state: "latest" }, true) }, "Show all objects"));
    if (present.find) return state("empty", "No key matches", ["Perhaps it is acknowledged already. ", h("a", { href: toKey(queue, present.find) }, "Explain ", foreign(present.find, "key"))]);
    return state("empty", "No key matches", "No key has this state and these properties now.");
  }

  /** Reads a page, again and again after failures that pass. The rows of earlier pages stay. */
  async function next(from, isFirst) {
    try {
      await readPage(from, isFirst);
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      const goesOn = isPassing(error);
      report(goesOn ? "waiting" : "stopped");
      if (goesOn && !isFirst) {
        show(strip, stale(error));
      } else {
        show(strip);
        show(found);
        show(list, failure(error, read));
      }
      if (!goesOn) return;
      failures += 1;
      clearTimeout(typing);
      typing = setTimeout(() => next(from, isFirst), backoff(failures, error));
    }
  }

  function read() {
    const { error, worker } = present;
    const isByError = typeof error === "string";
    errorNote.hidden = !isByError && !worker;
    if (worker) show(errorNote, "Keys that the worker ", foreign(worker), " holds. ", h("a", { href: toPage("workers") }, "All workers"));
    else if (isByError) show(errorNote, error === "" ? "Keys without an error" : ["Keys with the error ", foreign(error)], ". ", h("a", { href: toParked(queue) }, "All errors"));
    // An action that has filters shows its progress until another state is listed.
    if (bulk.dataset.state !== present.state) {
      bulk.dataset.state = present.state;
      show(bulk, bulkBar({ queue, state: present.state, isPermitted, signal, onDone: read, filterOf: () => ({ prefix: present.find || null, source: present.source || null, error: present.error }) }));
    }
    return next(null, true);
  }
  signal.addEventListener("abort", () => clearTimeout(typing), { once: true });
  show(list, loading("Reading the keys"));
  isPermitted = await whoami().then((who) => may(who, "admin", queue), () => false);
  await read();
}

