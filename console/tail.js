// The changes of a queue as they happen, from its watch.

import { Problem, get, queuePath, stream } from "./api.js";
import { now } from "./clock.js";
import { announce, button, count, counted, foreign, h, muted, searchField, setText, show, time } from "./dom.js";
import { Raw, parse } from "./json.js";
import { backoff, isPassing, live, reporter, setLive } from "./live.js";
import { preview } from "./object.js";
import { toKey } from "./routes.js";
import { failure, stale } from "./states.js";

/** Rows that are shown, and lines that are kept for them. Older ones are left out. */
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
/** The interval of bookmarks. A stream without a line for two and a half of them is dead. */
const BOOKMARK = "5s";
const SILENCE = 12_500;
/** How long the page says that rows were left out. */
const LEFT_OUT_MS = 5000;
/** The line that stands for changes that the server no longer has. */
const GAP = "";
const OBJECTS = new Set(["object"]);
const ROW = /^\{"type":"(Added|Updated|Deleted)"/;
/** The version of a row is behind its key, before its object. */
const VERSION = /^\{"type":"\w+","key":"(?:[^"\\]|\\.)*","resource_version":(\d+)(,"object":)?/;
/** Only the start of a longer line is read. The browser's parser is faster, but keeps no text. */
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
  if (line === GAP) return h("li", { class: "gap" }, "Here changes are missing: the server no longer has them.");
  const row = partsOf(line);
  return h("li", { class: row.type.toLowerCase() },
    h("span", { class: "when" }, seenAt(at)), h("span", { class: "delta-type" }, row.type),
    h("a", { class: "row", href: toKey(queue, row.key) }, foreign(row.key, "key")),
    muted(row.source ? ["from ", foreign(row.source), " · "] : null, `event ${row.resource_version}`),
    row.object ? preview(row.object.text) : muted("without an object"));
}

/** When the page got a row, which may be long after the change. */
function seenAt(at) {
  const element = time(at);
  element.title = `Seen here at ${element.title}`;
  return element;
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
  const report = reporter(signal);
  let kept = [];
  let keptChars = 0;
  let seenRows = 0;
  let leftOutAt = -Infinity;
  let version = null;
  let hasGap = false;
  let isOpen = false;
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
    leftOutAt = -Infinity;
    show(list);
  };
  const text = searchField("Text in the row", present.find, () => change({ find: text.value || null }), { "data-find": true });
  const prefix = h("input", { type: "search", placeholder: "Start of the key", "aria-label": "Start of the key", value: present.prefix ?? "", onchange: () => { change({ prefix: prefix.value || null }); reconnect(); } });
  const types = h("select", { "aria-label": "Type", onchange: () => change({ type: types.value || null }) }, TYPES.map((type) => h("option", { value: type }, type || "All types")));
  present.type = TYPES.includes(present.type) ? present.type : null;
  types.value = present.type ?? "";
  const views = h("select", { "aria-label": "View", onchange: () => { change({ view: views.value }); reconnect(); } }, VIEWS.map(([value, title]) => h("option", { value }, title)));
  views.value = present.view === "known" ? "known" : "latest";
  const pauseButton = h("button", { type: "button", onclick: () => setLive(!live()) }, "Pause");
  const clear = button("Clear", empty);
  show(body, strip, h("div", { class: "bar" }, text, prefix, types, views, pauseButton, clear), status, list);

  function reconnect() {
    version = null;
    isOpen = false;
    connection.abort();
  }

  /** Takes lines of the stream. They are parsed only when they are drawn. */
  function take(lines) {
    const at = new Date(now()).toISOString();
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
      keep(line, at);
    }
  }

  function keep(line, at) {
    kept.push([line, at]);
    keptChars += line.length;
    while (kept.length > KEPT || (keptChars > KEPT_CHARS && kept.length > 1)) {
      keptChars -= kept.shift()[0].length;
      if (live()) leftOutAt = performance.now();
    }
  }

  /** A bookmark, or the end of the stream. */
  function control(line) {
    if (line === "") return;
    const row = JSON.parse(line);
    if (row.type === "Bookmark") version = String(row.resource_version);
    if (row.type === "Error") throw new Problem(row.problem);
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
    const rows = list.querySelectorAll("a.row").length;
    const since = `${counted(seenRows, "change")} since you came${rows === seenRows ? "" : `, the newest ${count(rows)} shown`}`;
    const shown = rows > 0 ? since : version === null ? "Connecting" : "Waiting for the next change";
    const isFast = live() && performance.now() - leftOutAt < LEFT_OUT_MS;
    setText(status, `${shown}${waiting}${isFast ? ". They come faster than anyone can read, so not every one is shown" : ""}.`);
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
      // From a version on nothing is missed, also before the first row.
      version ??= String((await get(queuePath(queue, "status"), { signal: either })).resource_version);
      if (hasGap) keep(GAP, "");
      hasGap = false;
      await stream(queuePath(queue, "watch"), {
        signal: either, onLines: take, silence: SILENCE,
        query: { view: views.value, resource_version: version, prefix: present.prefix, bookmark: BOOKMARK },
        onOpen: () => {
          isOpen = true;
          if (failures > 0) announce("Connected again");
          failures = 0;
          show(strip);
          report();
        },
      });
      // The server ends a stream after some minutes, and when it shuts down.
      await new Promise((resolve) => { setTimeout(resolve, AGAIN_AFTER); });
    } catch (error) {
      if (signal.aborted) return;
      if (either.aborted) continue;
      const problem = error instanceof Problem ? error : new Problem({ code: "unreachable", title: "The server can't be reached", detail: error.message });
      if (problem.code === "expired") {
        // Before the first stream has begun, nobody misses anything.
        hasGap = isOpen;
        version = null;
      } else if (!isPassing(problem)) {
        report("stopped");
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
