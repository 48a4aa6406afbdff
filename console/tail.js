// The changes of a queue as they happen, from its watch.

import { Problem, queuePath, stream } from "./api.js";
import { announce, count, counted, foreign, h, setText, show, time } from "./dom.js";
import { Raw, parse } from "./json.js";
import { backoff, isPassing, live, report, setLive } from "./live.js";
import { preview } from "./object.js";
import { toKey } from "./routes.js";
import { failure, stale } from "./states.js";

/** Rows that are shown, and lines that are kept until they are shown. Older ones are left out. */
const ROWS = 200;
const KEPT = 200;
/** Characters of the lines that are kept: an object may have a megabyte. */
const KEPT_CHARS = 8 << 20;
/** The time between two drawings, in milliseconds. */
const DRAW_EVERY = 250;
/** Rows that are added in one drawing: more would take longer than a frame. */
const ADDED_MAX = 40;
const ADDED_CHARS = 1 << 20;
/** The pause between the end of a stream and the next one. */
const AGAIN_AFTER = 500;
const OBJECTS = new Set(["object"]);
const ROW = /^\{"type":"(Added|Updated|Deleted)"/;
/** The version of a row is behind its key, before its object. */
const VERSION = /^\{"type":"\w+","key":"(?:[^"\\]|\\.)*","resource_version":(\d+)(,"object":)?/;
/** Of a longer line only the start is looked at, because the browser's own parser is faster, though it keeps no text of the object. */
const LONG = 4096;
const TYPES = ["", "Added", "Updated", "Deleted"];
const VIEWS = [["latest", "Accepted"], ["known", "Acknowledged"]];

/** The parts of a line that a row shows. */
function partsOf(line) {
  const head = line.length > LONG && VERSION.exec(line);
  if (!head?.[2]) return parse(line, OBJECTS);
  const begin = head[0].length;
  return { ...JSON.parse(line), resource_version: head[1], object: new Raw(line.slice(begin, begin + LONG / 2)) };
}

function rowOf(queue, line, at) {
  const row = partsOf(line);
  return h("li", { class: row.type.toLowerCase() },
    h("span", { class: "when" }, time(at)), h("span", { class: "delta-type" }, row.type),
    h("a", { class: "row", href: toKey(queue, row.key) }, foreign(row.key, "key")),
    h("span", { class: "muted" }, row.source ? ["from ", foreign(row.source), " · "] : null, `event ${row.resource_version}`),
    row.object ? preview(row.object.text) : h("span", { class: "muted" }, "without an object"));
}

/** Waits until the page is seen. */
function untilSeen(signal) {
  return new Promise((resolve) => {
    const end = () => {
      if (!signal.aborted && document.hidden) return;
      document.removeEventListener("visibilitychange", end);
      resolve();
    };
    document.addEventListener("visibilitychange", end);
    signal.addEventListener("abort", end, { once: true });
  });
}

/** The number of lines that one drawing adds: at least one. */
function drawable(lines) {
  let chars = 0;
  const end = lines.slice(0, ADDED_MAX).findIndex(([line]) => {
    chars += line.length;
    return chars > ADDED_CHARS;
  });
  return end < 0 ? ADDED_MAX : Math.max(1, end);
}

export async function tailView({ queue, body, query, signal, setQuery, reload }) {
  const present = { ...query };
  let kept = [];
  let keptChars = 0;
  let seenRows = 0;
  let leftOut = 0;
  let version = null;
  let connection = new AbortController();

  const list = h("ol", { class: "tail" });
  const status = h("p", { class: "found" });
  const strip = h("div");
  const change = (values) => {
    Object.assign(present, values);
    setQuery(present);
    empty();
  };
  const empty = () => {
    kept = [];
    keptChars = 0;
    show(list);
  };
  const text = h("input", { type: "search", "data-find": true, placeholder: "Text in the row", "aria-label": "Text in the row", value: present.find ?? "", oninput: () => change({ find: text.value }) });
  const prefix = h("input", { type: "search", placeholder: "Start of the key", "aria-label": "Start of the key", value: present.prefix ?? "", onchange: () => { change({ prefix: prefix.value }); reconnect(); } });
  const types = h("select", { "aria-label": "Type", onchange: () => change({ type: types.value }) }, TYPES.map((type) => h("option", { value: type }, type || "All types")));
  types.value = TYPES.includes(present.type) ? present.type : "";
  const views = h("select", { "aria-label": "View", onchange: () => { change({ view: views.value }); reconnect(); } }, VIEWS.map(([value, title]) => h("option", { value }, title)));
  views.value = present.view === "known" ? "known" : "latest";
  const pauseButton = h("button", { type: "button", onclick: () => setLive(!live()) }, "Pause");
  const clear = h("button", { type: "button", onclick: empty }, "Clear");
  show(body, strip, h("div", { class: "bar" }, text, prefix, types, views, pauseButton, clear), status, list);

  function reconnect() {
    version = null;
    connection.abort();
  }

  /** Takes lines of the stream. They are parsed only when they are drawn. */
  function take(lines) {
    const now = new Date().toISOString();
    for (const line of lines) {
      const type = ROW.exec(line)?.[1];
      if (!type) {
        control(line);
        continue;
      }
      version = VERSION.exec(line)?.[1] ?? version;
      seenRows += 1;
      if (present.type && type !== present.type) continue;
      if (present.find && !line.includes(present.find)) continue;
      kept.push([line, now]);
      keptChars += line.length;
      while (kept.length > KEPT || (keptChars > KEPT_CHARS && kept.length > 1)) {
        keptChars -= kept.shift()[0].length;
        leftOut += 1;
      }
    }
  }

  /** A bookmark, or the end of the stream. */
  function control(line) {
    if (line === "") return;
    const row = parse(line);
    if (row.type === "Bookmark") version = String(row.resource_version);
    if (row.type === "Error") {
      version = null;
      throw new Problem(row.problem);
    }
  }

  function draw() {
    setText(pauseButton, live() ? "Pause" : "Go on");
    if (live() && kept.length > 0) {
      const fresh = kept.splice(0, drawable(kept));
      for (const [line] of fresh) keptChars -= line.length;
      list.prepend(...fresh.reverse().map(([line, at]) => rowOf(queue, line, at)));
      while (list.childElementCount > ROWS) list.lastElementChild.remove();
    }
    const waiting = live() || kept.length === 0 ? "" : `, ${counted(kept.length, "row")} ${kept.length === KEPT ? "or more " : ""}while paused`;
    const shown = list.childElementCount === 0 ? "Waiting for the next change" : `${counted(seenRows, "change")} since you came, the newest ${count(list.childElementCount)} shown`;
    setText(status, `${shown}${waiting}${leftOut > 0 && live() ? ". They come faster than anybody reads, so not every one is shown" : ""}.`);
  }
  const timer = setInterval(draw, DRAW_EVERY);
  signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  draw();

  // A page that nobody sees reads nothing. It goes on from the version that it has.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) connection.abort();
  }, { signal });

  let failures = 0;
  while (!signal.aborted) {
    if (document.hidden) await untilSeen(signal);
    connection = new AbortController();
    const either = AbortSignal.any([signal, connection.signal]);
    try {
      await stream(queuePath(queue, "watch"), {
        signal: either, onLines: take,
        query: { view: views.value, resource_version: version ?? "now", prefix: present.prefix },
        onOpen: () => {
          if (failures > 0) announce("Connected again");
          failures = 0;
          show(strip);
          report(live() ? "live" : "paused");
        },
      });
      // The server ends a stream after some minutes, and when it shuts down.
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_AFTER); });
    } catch (error) {
      if (signal.aborted) return;
      if (either.aborted) continue;
      const problem = error instanceof Problem ? error : new Problem({ code: "unreachable", title: "The server can't be reached", detail: "", status: 0 });
      if (problem.code === "expired") {
        version = null;
      } else if (!isPassing(problem)) {
        show(body, failure(problem, reload));
        return;
      }
      failures += 1;
      report("waiting");
      show(strip, stale(problem));
      await new Promise((resolve) => {
        const wait = setTimeout(resolve, backoff(failures, problem));
        signal.addEventListener("abort", () => { clearTimeout(wait); resolve(); }, { once: true });
      });
    }
  }
}
