// The series of a queue, or the sums over all queues: four charts, and how long until nothing waits.

import { get } from "./api.js";
import { chart } from "./charts.js";
import { are, count, counted, h, setText, show, span } from "./dom.js";
import { poll } from "./live.js";

/** A series has a new point each minute. */
const EVERY = 20_000;
const RANGES = { __proto__: null, "1h": ["the last hour", "1m"], "6h": ["the last 6 hours", "5m"], "24h": ["the last 24 hours", "15m"] };

const perMinute = (value) => (value < 10 && !Number.isInteger(value) ? value.toFixed(1) : count(Math.round(value)));

const CHARTS = [
  { title: "Changes and acks a minute", format: perMinute, lines: [["in", "one", ({ per_minute: rates }) => rates?.changes], ["acknowledged", "two", ({ per_minute: rates }) => rates?.acks], ["failed", "three", ({ per_minute: rates }) => rates?.failures]] },
  { title: "Ready keys", format: count, lines: [["ready", "one", ({ gauges }) => gauges?.ready]] },
  { title: "Oldest change", format: span, lines: [["age", "one", ({ gauges }) => gauges?.oldest_unacknowledged_age_ms]] },
  { title: "Processing time", format: span, lines: [["half of the leases", "one", ({ processing }) => processing?.p50_ms], ["99 %", "two", ({ processing }) => processing?.p99_ms]] },
];

/** A time in hours and minutes. */
function roughly(ms) {
  const minutes = Math.ceil(ms / 60_000);
  return minutes < 60 ? `about ${minutes} min` : `about ${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How long until no key waits, in a sentence. */
export function drainText({ empties_in_ms: left, reason, waiting }) {
  if (waiting === 0) return "No key is ready or leased.";
  const keys = counted(waiting, "key");
  if (left !== null && left !== undefined) return `Empty in ${roughly(left)} at this rate: ${keys} ${are(waiting, "waits", "wait")}.`;
  if (reason === "stalled") return `${keys} ${are(waiting, "waits", "wait")}, and none was acknowledged in the last minutes.`;
  if (reason === "growing") return `It does not get empty at this rate: ${keys} ${are(waiting, "waits", "wait")}.`;
  return `${keys} ${are(waiting, "waits", "wait")}. The rate is not known yet.`;
}

/** The charts of `path`, and a promise that ends when their first points are shown, or can't be. `onRange` gets another range. */
export function seriesSection({ path, range, onRange, signal, isCompact = false }) {
  let present = range in RANGES ? range : "1h";
  const drain = h("p", { class: "drain" });
  const note = h("p", { class: "muted" });
  const choose = h("select", { "aria-label": "Time", onchange: () => { present = choose.value; onRange(present); refresh(); } }, Object.entries(RANGES).map(([value, [text]]) => h("option", { value }, text)));
  choose.value = present;
  const isNarrow = matchMedia("(max-width: 44rem)").matches;
  const charts = CHARTS.map(({ title, format, lines }) => ({ ...chart({ title, format, isSmall: isCompact || isNarrow }), lines }));
  const grid = h("div", { class: `charts${isCompact ? " compact" : ""}` }, charts.map(({ element }) => element));
  const element = h("details", { class: "series", open: !isCompact || !isNarrow }, h("summary", null, "Charts"), h("div", { class: "bar" }, choose, drain), grid, note);
  let shown;
  const isShown = new Promise((resolve) => { shown = resolve; });

  async function read() {
    let series;
    try {
      series = await get(path, { query: { since: present, step: RANGES[present][1] }, signal });
    } catch (error) {
      shown();
      // An older server has no series.
      element.hidden = error.status === 404;
      if (error.status === 404) return;
      throw error;
    }
    element.hidden = false;
    const step = series.step_ms;
    const [from, to] = [Date.parse(series.from_at), Date.parse(series.until_at)];
    let lost = 0;
    const points = series.points.map((point) => {
      const at = Date.parse(point.at);
      const minutes = Math.min(step, to - at) / 60_000;
      lost += minutes - point.minutes;
      return { at, point, isKnown: point.minutes * 2 > minutes };
    });
    for (const { update, lines } of charts) {
      update({ from, to: Math.max(to, from + step), step, times: points.filter(({ isKnown }) => isKnown).map(({ at }) => at),
        lines: lines.map(([name, kind, value]) => ({ name, kind, points: points.map(({ at, point, isKnown }) => ({ at, value: isKnown ? value(point) ?? null : null })) })) });
    }
    show(drain, drainText(series.drain));
    setText(note, lost > 0 ? `Grey: the server did not run, or did not record (${counted(lost, "minute")}).` : "");
    shown();
  }
  const refresh = poll(read, { every: EVERY, signal, onFailure: () => {} });
  return { element, isShown };
}
