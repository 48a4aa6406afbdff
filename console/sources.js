// The sources of all queues, and the reflectors that report: which one is stale?

import { get } from "./api.js";
import { ago, count, counted, foreign, h, seen, show, span, time } from "./dom.js";
import { now } from "./clock.js";
import { searchPage } from "./page.js";
import { toKeys, toPage, toQueue } from "./routes.js";
import { state } from "./states.js";
import { nothing, pill, textCell } from "./table.js";

const SHOWN = 500;
/** Most entries that are read. */
const ITEMS_MAX = 5000;

/** All pages of a list, but not without end. An older server does not have it. */
async function readPages(path, name, signal) {
  const read = { items: [], unavailable: [], hasMore: false };
  let next = null;
  try {
    do {
      const page = await get(path, { query: { limit: SHOWN, continue: next }, raw: new Set(["sequence"]), signal });
      read.items.push(...(page.items ?? page[name]));
      read.unavailable.push(...(page.unavailable ?? []));
      next = page.continue ?? page.next ?? null;
    } while (next !== null && read.items.length < ITEMS_MAX);
  } catch (error) {
    if (error.status !== 404) throw error;
    return { ...read, isUnknown: true };
  }
  return { ...read, hasMore: next !== null };
}

/** A cell with an instant as an age. */
const agoOr = (instant, empty = "–") => (instant ? ago(instant) : empty);

/** The counts of a list. */
function listText(last) {
  if (!last) return "no list";
  if (last.aborted) return h("span", { class: "alarm" }, "cut off");
  if (!last.ended_at) return "running";
  const { replaced, deleted, unchanged } = last.counts ?? {};
  return [ago(last.ended_at), last.counts && h("span", { class: "muted" }, ` ${count(replaced)} queued, ${count(deleted)} deleted, ${count(unchanged)} unchanged`)];
}

const SOURCE_COLUMNS = [{ title: "Source" }, { title: "Queue" }, { title: "State" }, { title: "Last contact" }, { title: "Stale after" }, { title: "Keys", isNumber: true }, { title: "Last list" }];

function sourceRow(first) {
  const cells = Object.fromEntries(["contact", "limit", "list"].map((name) => [name, h("td", { class: name === "limit" ? null : "long" })]));
  const keys = textCell("td", { class: "number" });
  const word = h("td");
  const update = (source) => {
    show(word, pill(source.is_stale ? "stale" : source.problem ? "out of step" : "in step", isBad(source)));
    show(cells.contact, agoOr(source.last_contact_at));
    show(cells.limit, typeof source.stale_after === "string" ? source.stale_after : typeof source.stale_after_ms === "number" ? span(source.stale_after_ms) : h("span", { class: "muted" }, "no threshold"));
    keys.set(count(source.keys));
    show(cells.list, source.problem && h("p", { class: "alarm" }, seen(source.problem.detail ?? String(source.problem))), listText(source.last_replace));
  };
  update(first);
  const name = h("a", { class: "row", href: toKeys(first.queue, { state: "latest", source: first.source }) }, foreign(first.source));
  return { element: h("tr", null, h("th", { scope: "row" }, name), h("td", null, h("a", { class: "plain", href: toQueue(first.queue) }, foreign(first.queue))), word, cells.contact, cells.limit, keys.element, cells.list), update };
}

const isBad = (source) => source.is_stale === true || Boolean(source.problem);

export function sourcesView(context) {
  searchPage(context, {
    what: "the sources", noun: "source", read: () => readPages("v1/sources", "sources", context.signal), columns: SOURCE_COLUMNS, create: sourceRow, keyOf: ({ queue, source }) => `${source}\n${queue}`,
    isWrong: isBad, wrongText: "Stale or out of step",
    sentenceOf: (all) => {
      const stale = all.filter((source) => source.is_stale);
      const wrong = all.filter(isBad).length;
      if (stale.length > 0) return [`${counted(stale.length, "source")} ${stale.length === 1 ? "has" : "have"} not been heard of for longer than ${stale.length === 1 ? "its threshold" : "their thresholds"}.`, true];
      if (wrong > 0) return [`${counted(wrong, "source")} ${wrong === 1 ? "is" : "are"} out of step.`, true];
      return ["Each source was heard of within its threshold.", false];
    },
    empty: () => state("empty", "No source is known", "A producer that sends source= with its calls appears here.", h("a", { class: "button", href: toPage("queues") }, "All queues")),
  });
}

const REFLECTOR_COLUMNS = [{ title: "Instance" }, { title: "Queue" }, { title: "Source" }, { title: "State" }, { title: "Last success" }, { title: "Next list" }, { title: "Last report" }, { title: "Version" }, { title: "Last error" }];

function reflectorRow(first) {
  const cells = Array.from({ length: 6 }, (_, index) => h("td", { class: index === 5 ? "error-text" : null }));
  const update = (one) => {
    show(cells[0], pill(one.state, one.state !== "ok"));
    show(cells[1], agoOr(one.last_success_at, "never"));
    const left = one.next_list_at ? new Date(one.next_list_at) - now() : null;
    show(cells[2], left === null ? "–" : left > 0 ? `in ${span(left)}` : time(one.next_list_at));
    show(cells[3], agoOr(one.last_seen_at));
    show(cells[4], one.version ? foreign(one.version) : "–");
    show(cells[5], one.last_error ? foreign(one.last_error) : nothing());
  };
  update(first);
  const where = h("td", { "data-label": "Queue" }, h("a", { class: "plain", href: toQueue(first.queue) }, foreign(first.queue)));
  const source = h("td", null, h("a", { class: "plain", href: toPage("sources", { find: first.source }) }, foreign(first.source)), first.kind && h("span", { class: "muted" }, ` ${first.kind}`));
  return { element: h("tr", null, h("th", { scope: "row" }, foreign(first.instance)), where, source, cells), update };
}

export function reflectorsView(context) {
  searchPage(context, {
    what: "the reflectors", noun: "reflector", read: () => readPages("v1/reflectors", "reflectors", context.signal), columns: REFLECTOR_COLUMNS, create: reflectorRow, keyOf: ({ instance, queue, source }) => `${instance}\n${queue}\n${source}`,
    isWrong: ({ state: word }) => word !== "ok", wrongText: "Failing or silent",
    sentenceOf: (all) => {
      const silent = all.filter((one) => one.state === "silent").length;
      const failing = all.filter((one) => one.state !== "ok" && one.state !== "silent").length;
      if (silent + failing === 0) return ["Each reflector reports, and its last list or watch succeeded.", false];
      return [[failing > 0 && `${counted(failing, "reflector")} ${failing === 1 ? "fails" : "fail"}.`, silent > 0 && `${counted(silent, "reflector")} ${silent === 1 ? "is" : "are"} silent.`].filter(Boolean).join(" "), true];
    },
    empty: () => state("empty", "No reflector reports", "deltaq reflect reports to the server that it feeds. An instance appears here with its first report."),
  });
}
