// The sources of all queues, and the reflectors that report: which one is stale?

import { get } from "./api.js";
import { ago, are, count, counted, foreign, h, muted, seen, span, time } from "./dom.js";
import { now } from "./clock.js";
import { searchPage } from "./page.js";
import { toPage } from "./routes.js";
import { state } from "./states.js";
import { pill } from "./table.js";
import { QUEUE, SOURCE } from "./workers.js";

const SHOWN = 500;
/** Most entries that are read. */
const ITEMS_MAX = 5000;

/** All pages of a list, but not without end. An older server does not have it. */
async function readPages(path, signal) {
  const read = { items: [], unavailable: [], hasMore: false };
  let next = null;
  try {
    do {
      const page = await get(path, { query: { limit: SHOWN, continue: next }, raw: new Set(["sequence"]), signal });
      read.items.push(...page.items);
      read.unavailable.push(...(page.unavailable ?? []));
      next = page.continue;
    } while (next !== null && read.items.length < ITEMS_MAX);
  } catch (error) {
    if (error.status !== 404) throw error;
    return { ...read, isUnknown: true };
  }
  return { ...read, hasMore: next !== null };
}

/** A list that a source has sent, with its counts. */
export function listText(last) {
  if (!last) return "no list";
  if (last.aborted) return h("span", { class: "alarm" }, "cut off; send the list again");
  if (!last.ended_at) return "running";
  const { replaced, deleted, unchanged } = last.counts;
  return [ago(last.ended_at), muted(` ${count(replaced)} queued, ${count(deleted)} deleted, ${count(unchanged)} unchanged`)];
}

export const LAST_LIST = ["Last list", (one) => [one.problem && h("p", { class: "alarm" }, seen(one.problem.detail)), listText(one.last_replace)], "long"];

const isBad = (source) => source.is_stale === true || Boolean(source.problem);

const isFailing = ({ state: word }) => word !== "ok";

/** The sources, each with the state of its reflector: the worst one, if several report. */
async function readSources(signal) {
  const [sources, { items }] = await Promise.all(["v1/sources", "v1/reflectors"].map((path) => readPages(path, signal)));
  const idOf = ({ queue, source }) => `${queue} ${source}`;
  const states = new Map(items.sort((a, b) => isFailing(a) - isFailing(b)).map((one) => [idOf(one), one.state]));
  for (const one of sources.items) one.reflector = states.get(idOf(one));
  return sources;
}

const SOURCE_COLUMNS = [
  SOURCE,
  QUEUE,
  ["State", (one) => pill(one.is_stale ? "stale" : one.problem ? "out of step" : one.last_contact_at ? "in step" : "no contact", isBad(one))],
  ["Last contact", (one) => one.last_contact_at && ago(one.last_contact_at), "long"],
  ["Stale after", (one) => one.stale_after ?? muted("never")],
  ["Reflector", ({ reflector, source }) => reflector && h("a", { class: "plain", href: toPage("reflectors", { find: source }) }, reflector)],
  ["Keys", (one) => count(one.keys), "number"],
  LAST_LIST,
];

export function sourcesView(context) {
  searchPage(context, {
    what: "the sources", noun: "source", read: () => readSources(context.signal), columns: SOURCE_COLUMNS, textOf: ({ queue, source }) => `${source}\n${queue}`,
    isWrong: isBad, wrongText: "Stale or out of step",
    sentenceOf: (all, bad) => {
      const stale = bad.filter((source) => source.is_stale).length;
      if (stale > 0) return `${counted(stale, "source")} ${are(stale, "has", "have")} not been heard from for longer than ${stale === 1 ? "its threshold" : "their thresholds"}.`;
      return bad.length > 0 ? `${counted(bad.length, "source")} ${are(bad.length)} out of step.` : "Each source was heard from within its threshold.";
    },
    empty: () => state("empty", "No source is known", "A producer that sends source= with its calls appears here."),
  });
}

const REFLECTOR_COLUMNS = [
  ["Instance", (one) => foreign(one.instance)],
  QUEUE,
  ["Source", (one) => [h("a", { class: "plain", href: toPage("sources", { find: one.source }) }, foreign(one.source)), one.kind && muted(` ${one.kind}`)]],
  ["State", (one) => pill(one.state, isFailing(one))],
  ["Last success", (one) => (one.last_success_at ? ago(one.last_success_at) : "never"), "long"],
  ["Next list", ({ next_list_at: next }) => next && (new Date(next) > now() ? `in ${span(new Date(next) - now())}` : time(next))],
  ["Behind", (one) => one.lag_ms > 0 && span(one.lag_ms)],
  ["Heartbeat", (one) => one.last_heartbeat_at && ago(one.last_heartbeat_at), "long"],
  ["Version", (one) => one.version && foreign(one.version)],
  ["Last error", (one) => one.last_error && foreign(one.last_error), "error"],
];

export function reflectorsView(context) {
  searchPage(context, {
    what: "the reflectors", noun: "reflector", read: () => readPages("v1/reflectors", context.signal), columns: REFLECTOR_COLUMNS, textOf: ({ instance, queue, source }) => `${instance}\n${queue}\n${source}`,
    isWrong: isFailing, wrongText: "Failing or silent",
    sentenceOf: (all, bad) => {
      const silent = bad.filter((one) => one.state === "silent").length;
      const failing = bad.length - silent;
      if (bad.length === 0) return "Each reflector reports, and its last list or watch succeeded.";
      return [failing > 0 && `${counted(failing, "reflector")} ${failing === 1 ? "fails" : "fail"}.`, silent > 0 && `${counted(silent, "reflector")} ${are(silent)} silent.`].filter(Boolean).join(" ");
    },
    empty: () => state("empty", "No reflector reports", "deltaq reflect reports to the server that it feeds. An instance appears here with its first report."),
  });
}
