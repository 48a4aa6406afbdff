// Charts of a series, as SVG. Points are drawn at their instants, and labelled in the zone of the reader.
// A minute in which no server ran is a gap, neither zero nor a line.

import { count, h, s, setText, show } from "./dom.js";

const HEIGHT = 150;
/** The margins: numbers on the left, times below. */
const LEFT = 44;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;
const MINUTE = 60_000;
/** Steps of the axis of time, in minutes. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720];
/** Offsets of zones are multiples of a quarter of an hour, in minutes. */
const QUARTER = 15;

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const clockOfZone = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "shortOffset" });
const dayAndClock = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "shortOffset" });

/** The instants on the axis: those whose local time is a multiple of the step. */
export function ticksOf(from, to, most) {
  const step = STEPS.find((minutes) => (to - from) / (minutes * MINUTE) <= most) ?? 1440;
  const grain = (step % QUARTER === 0 ? QUARTER : step % 5 === 0 ? 5 : 1) * MINUTE;
  const ticks = [];
  for (let at = Math.ceil(from / grain) * grain; at <= to; at += grain) {
    const date = new Date(at);
    if ((date.getHours() * 60 + date.getMinutes()) % step === 0) ticks.push(at);
  }
  // When clocks are set back, an hour comes twice: the labels then have the offset from UTC.
  const isChanging = new Date(from).getTimezoneOffset() !== new Date(to).getTimezoneOffset();
  return ticks.map((at) => ({ at, text: (isChanging ? clockOfZone : clock).format(new Date(at)) }));
}

/** A round number that is not smaller than the values. */
function roundUp(most) {
  if (most <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].find((one) => one * size >= most) * size;
}

/** The parts of a line between gaps: points that follow each other within a step. */
export function partsOf(points, step) {
  const parts = [];
  let previous = null;
  for (const point of points) {
    if (point.value === null) {
      previous = null;
      continue;
    }
    if (previous !== null && point.at - previous.at <= step * 1.5) parts.at(-1).push(point);
    else parts.push([point]);
    previous = point;
  }
  return parts;
}

/** The gaps between the points, from and to. */
function gapsOf(times, step, from, to) {
  const gaps = [];
  let end = from;
  for (const at of times) {
    if (at - end > step * 1.5) gaps.push([end === from ? from : end + step / 2, at - step / 2]);
    end = at;
  }
  if (to - end > step * 2.5) gaps.push([end === from ? from : end + step / 2, to]);
  return gaps;
}

/** A chart. `update` gets `lines`, {name, kind, points: [{at, value}]} with instants in ms, and `times`, the instants that are no gap. */
export function chart({ title, format = count, isSmall = false }) {
  const width = isSmall ? 320 : 640;
  const drawing = s("svg", { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", tabindex: "0", focusable: "true" });
  const readout = h("output", { class: "readout" });
  const legend = h("span", { class: "legend" });
  const element = h("figure", { class: "chart-box" }, h("figcaption", null, h("strong", null, title), legend, readout), drawing);
  let now = null;
  let cursor = null;

  const x = (at) => LEFT + ((at - now.from) / (now.to - now.from)) * (width - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / now.most) * (HEIGHT - TOP - BOTTOM);

  function draw() {
    const { from, to, lines, times, step, most } = now;
    const path = (part) => (part.length === 1 ? `M${x(part[0].at) - 1} ${y(part[0].value)}h2` : `M${part.map(({ at, value }) => `${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("L")}`);
    const grid = [0, most / 2, most].map((value) => [s("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), s("text", { class: "axis", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value))]);
    const ticks = ticksOf(from, to, isSmall ? 4 : 7).map(({ at, text }) => s("text", { class: "axis tick", x: Math.min(width - RIGHT - 14, Math.max(LEFT + 14, x(at))), y: HEIGHT - 4, "text-anchor": "middle", "data-at": new Date(at).toISOString() }, text));
    const gaps = gapsOf(times, step, from, to).map(([begin, end]) => s("rect", { class: "gap-area", x: x(begin), width: Math.max(1, x(end) - x(begin)), y: TOP, height: HEIGHT - TOP - BOTTOM }));
    const paths = lines.map(({ kind, points }) => s("path", { class: `line ${kind}`, d: partsOf(points, step).map(path).join("") }));
    const mark = cursor === null ? null : s("line", { class: "cursor", x1: x(times[cursor]), x2: x(times[cursor]), y1: TOP, y2: HEIGHT - BOTTOM });
    show(drawing, gaps, grid, ticks, paths, mark);
  }

  const valuesAt = (at) => now.lines.map(({ name, points }) => {
    const value = points.find((point) => point.at === at)?.value ?? null;
    return `${name} ${value === null ? "–" : format(value)}`;
  }).join(", ");
  function say() {
    setText(readout, cursor === null ? "" : `${dayAndClock.format(new Date(now.times[cursor]))}: ${valuesAt(now.times[cursor])}`);
    draw();
  }
  drawing.addEventListener("pointermove", (event) => {
    if (!now || now.times.length === 0) return;
    const box = drawing.getBoundingClientRect();
    const at = now.from + (((event.clientX - box.left) / box.width) * width - LEFT) / (width - LEFT - RIGHT) * (now.to - now.from);
    const nearest = now.times.reduce((best, time, index) => (Math.abs(time - at) < Math.abs(now.times[best] - at) ? index : best), 0);
    if (nearest === cursor) return;
    cursor = nearest;
    say();
  });
  drawing.addEventListener("pointerleave", () => { cursor = null; if (now) say(); });
  drawing.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !now || now.times.length === 0) return;
    event.preventDefault();
    const last = now.times.length - 1;
    cursor = cursor === null ? last : Math.min(last, Math.max(0, cursor + step));
    say();
  });

  const update = ({ from, to, step, times, lines }) => {
    now = { from, to, step, lines, times, most: roundUp(Math.max(...lines.flatMap(({ points }) => points.map(({ value }) => value ?? 0)))) };
    if (cursor !== null && cursor >= times.length) cursor = null;
    const summary = lines.map((line) => {
      const known = line.points.filter(({ value }) => value !== null);
      return known.length === 0 ? `${line.name}: nothing is known` : `${line.name}: last ${format(known.at(-1).value)}, at most ${format(Math.max(...known.map(({ value }) => value)))}`;
    });
    drawing.setAttribute("aria-label", `${title}. ${summary.join(". ")}. The arrow keys read single minutes.`);
    show(legend, lines.map(({ name, kind }) => h("span", { class: `key-of ${kind}` }, name)));
    say();
  };
  return { element, update };
}
