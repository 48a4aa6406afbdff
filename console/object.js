// Objects as their producers wrote them: indented and coloured by token, but never parsed and printed again, so that 1.50 stays 1.50.

import { bytes, h, seen, show } from "./dom.js";
import { leaves, tokens } from "./json.js";
import { copyButton } from "./table.js";

/** Longer texts are shown without colours, and in parts. */
const COLOURED_MAX = 60_000;
const PART = 20_000;
const LEAVES_MAX = 20_000;
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
  const size = h("span", { class: "muted" }, bytes(new TextEncoder().encode(text).length));
  const pre = h("pre", { class: "object", dir: "ltr", tabindex: "0", "aria-label": "Object" });
  const bar = h("div", { class: "object-bar" }, size, copyButton(text, "Copy the object"));
  if (text.length <= COLOURED_MAX) {
    show(pre, nodesOf(text));
    return h("div", { class: "object-box" }, bar, pre);
  }
  let shown = 0;
  const more = h("button", { type: "button" });
  const next = () => {
    pre.append(...seen(text.slice(shown, shown + PART), false));
    shown = Math.min(text.length, shown + PART);
    more.textContent = `Show more (${bytes(text.length - shown)} left)`;
    more.hidden = shown === text.length;
  };
  more.addEventListener("click", next);
  next();
  return h("div", { class: "object-box" }, bar, pre, more);
}

/** The first characters of an object, for a line. */
export function preview(text, length = 160) {
  const line = text.length > length ? `${text.slice(0, length)}…` : text;
  return h("code", { class: "preview", dir: "ltr" }, seen(line.replace(/\s+/g, " ")));
}

/** What differs between two objects, by JSON pointer. */
function changes(before, after) {
  const old = leaves(before, LEAVES_MAX);
  const fresh = leaves(after, LEAVES_MAX);
  const found = [];
  for (const [pointer, value] of old) {
    if (!fresh.has(pointer)) found.push([pointer, value, null]);
    else if (fresh.get(pointer) !== value) found.push([pointer, value, fresh.get(pointer)]);
  }
  for (const [pointer, value] of fresh) if (!old.has(pointer)) found.push([pointer, null, value]);
  return found;
}

const leaf = (value, kind) => (value === null ? h("span", { class: "muted" }, "absent") : h(kind, { dir: "ltr" }, seen(value.length > 300 ? `${value.slice(0, 300)}…` : value)));

/** A table of the differences between the acknowledged object and the newest one. */
export function diffView(known, newest) {
  let found;
  try {
    found = changes(known, newest);
  } catch {
    return h("p", { class: "muted" }, "The objects can't be compared.");
  }
  if (found.length === 0) return h("p", { class: "muted" }, "Every value is the same.");
  const rows = found.slice(0, CHANGES_SHOWN).map(([pointer, before, after]) => h("tr", null,
    h("th", { scope: "row" }, h("code", null, h("bdi", null, seen(pointer === "" ? "(whole object)" : pointer)))),
    h("td", { "data-label": "Known" }, leaf(before, "del")), h("td", { "data-label": "Newest" }, leaf(after, "ins"))));
  const left = found.length - rows.length;
  return h("div", { class: "scroll" }, h("table", { class: "diff" },
    h("caption", { class: "unseen" }, "Differences between the known object and the newest one"),
    h("thead", null, h("tr", null, ["Place", "Known", "Newest"].map((title) => h("th", { scope: "col" }, title)))), h("tbody", null, rows)),
  left > 0 && h("p", { class: "muted" }, `${left} further differences are not shown.`));
}
