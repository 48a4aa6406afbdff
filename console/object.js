// Objects as their producers wrote them: indented and coloured by token, never parsed and printed again.

import { bytes, count, h, muted, seen, show, startOf } from "./dom.js";
import { leaves, tokens } from "./json.js";
import { copyButton, listTable } from "./table.js";

/** Longer texts are shown without colours, and in parts. */
const COLOURED_MAX = 60_000;
const PART = 20_000;
/** Values that are compared: more would take longer than a tenth of a second. */
const LEAVES_MAX = 5000;
/** Larger objects are compared only on demand. */
const COMPARED_CHARS = 200_000;
const CHANGES_SHOWN = 200;

/** The text indented by its structure; only white space between tokens changes. */
function* indented(text) {
  const open = [];
  let previous = null;
  const line = () => `\n${"  ".repeat(open.length)}`;
  for (const [kind, begin, end] of tokens(text)) {
    const token = text.slice(begin, end);
    const isFirst = previous === "{" || previous === "[";
    if (kind === "}" || kind === "]") {
      open.pop();
      yield ["mark", isFirst ? token : line() + token];
    } else {
      const isEntry = isFirst || previous === ",";
      const isName = isEntry && open.at(-1) === "{";
      const gap = isEntry ? line() : previous === ":" ? " " : "";
      yield [isName ? "name" : kind.length > 1 ? kind : "mark", gap + token];
      if (kind === "{" || kind === "[") open.push(kind);
    }
    previous = kind;
  }
}

/** The text indented, without colours. */
export const pretty = (text) => Array.from(indented(text), ([, token]) => token).join("");

function coloured(text) {
  const nodes = [];
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(plain);
    plain = "";
  };
  for (const [kind, token] of indented(text)) {
    if (kind === "mark") {
      plain += token;
    } else {
      flush();
      nodes.push(h("span", { class: `json-${kind}` }, seen(token, false)));
    }
  }
  flush();
  return nodes;
}

/** The nodes of a text; a text that is no JSON stays as it is. */
function nodesOf(text) {
  try {
    return coloured(text);
  } catch {
    return seen(text, false);
  }
}

/** An object with its size and a button that copies it. */
export function objectView(text) {
  const size = muted(bytes(new TextEncoder().encode(text).length));
  const pre = h("pre", { class: "object", dir: "ltr", tabindex: "0", "aria-label": "Object" });
  const bar = h("div", { class: "object-bar" }, size, copyButton(text, "Copy the object"));
  if (text.length <= COLOURED_MAX) {
    show(pre, nodesOf(text));
    return h("div", { class: "object-box" }, bar, pre);
  }
  let shown = 0;
  const more = h("button", { type: "button" });
  const next = () => {
    const part = startOf(text.slice(shown, shown + PART), PART);
    pre.append(...seen(part, false));
    shown += part.length;
    more.textContent = `Show more (${bytes(text.length - shown)} left)`;
    more.hidden = shown === text.length;
  };
  more.addEventListener("click", next);
  next();
  return h("div", { class: "object-box" }, bar, pre, more);
}

/** The first characters of an object, for a line. */
export function preview(text, length = 160) {
  const line = text.length > length ? `${startOf(text, length)}…` : text;
  return h("code", { class: "preview", dir: "ltr" }, seen(line.replace(/\s+/g, " ")));
}

/** What differs between two objects, by JSON pointer, and whether all of both was compared. */
function changes(before, after) {
  const old = leaves(before, LEAVES_MAX);
  const fresh = leaves(after, LEAVES_MAX);
  const isWhole = old.size < LEAVES_MAX && fresh.size < LEAVES_MAX;
  const found = [];
  for (const [pointer, value] of old) {
    const now = fresh.get(pointer) ?? null;
    // A value that is missing may be in a part that was not read.
    if (now !== value && (now !== null || fresh.size < LEAVES_MAX)) found.push([pointer, value, now]);
  }
  if (old.size < LEAVES_MAX) for (const [pointer, value] of fresh) if (!old.has(pointer)) found.push([pointer, null, value]);
  return { found, isWhole };
}

const leaf = (value, kind) => (value === null ? muted("absent") : h(kind, { dir: "ltr" }, seen(value.length > 300 ? `${startOf(value, 300)}…` : value)));

/** The differences between the acknowledged object and the newest one. */
export function diffView(known, newest) {
  if (known.length + newest.length <= COMPARED_CHARS) return differences(known, newest);
  const place = h("div");
  return show(place, h("button", { type: "button", onclick: () => show(place, differences(known, newest)) }, "Compare these large objects"));
}

function differences(known, newest) {
  let found;
  let isWhole;
  try {
    ({ found, isWhole } = changes(known, newest));
  } catch {
    return h("p", { class: "muted" }, "The objects can't be compared.");
  }
  const rest = !isWhole && h("p", { class: "muted" }, `Of each object the first ${count(LEAVES_MAX)} values are compared${found.length === 0 ? "; they are the same" : ""}.`);
  if (found.length === 0) return rest || h("p", { class: "muted" }, "Every value is the same.");
  const rows = found.slice(0, CHANGES_SHOWN);
  const place = ([pointer]) => h("code", null, h("bdi", null, seen(pointer === "" ? "(whole object)" : pointer)));
  const left = found.length - rows.length;
  const table = listTable("Differences between the known object and the newest one", [["Place", place], ["Known", ([, before]) => leaf(before, "del")], ["Newest", ([, , after]) => leaf(after, "ins")]], rows, "diff");
  return h("div", null, table.element, left > 0 && h("p", { class: "muted" }, `${count(left)} further differences are not shown.`), rest);
}
