// Elements, texts, numbers and times. Names, keys, objects and errors come from outside: they become text nodes, never markup.

import { now } from "./clock.js";

const SVG = "http://www.w3.org/2000/svg";

/** What changes the order of a text or can't be seen: controls, marks of direction, characters without a width, white space that looks like a space. */
const HIDDEN = "[[\\p{Cc}\\p{Cs}\\p{Z}\\p{Default_Ignorable_Code_Point}\\u2800\\ufff9-\\ufffb]--[ \\u3000";
const UNSEEN = new RegExp(`${HIDDEN}\\t\\n]]`, "gv");
const UNSEEN_IN_LINE = new RegExp(`${HIDDEN}]]`, "gv");
/** The same, and spaces at the ends. */
const UNSEEN_IN_NAME = new RegExp(`${HIDDEN}]]|^ +| +$`, "gv");

/** The children that are there. */
const flat = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "indeterminate") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

/** An HTML element. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Sets the text of an element if it differs. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Replaces the children of an element. */
export function show(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

/** Replaces the children of an element. A link keeps the focus if it is among the new ones. */
export function showAgain(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  show(element, ...children);
  if (focused !== null) [...element.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
}

/** A text as nodes. Unseen characters are spelled out: they can neither hide nor reorder. */
export function seen(text, isLine = true) {
  return spelled(text, isLine ? UNSEEN_IN_LINE : UNSEEN);
}

function spelled(text, unseen) {
  const nodes = [];
  let end = 0;
  for (const match of text.matchAll(unseen)) {
    if (match.index > end) nodes.push(text.slice(end, match.index));
    const codes = [...match[0]].map((one) => {
      const code = one.codePointAt(0).toString(16).padStart(4, "0");
      return code.length > 4 ? `\\u{${code}}` : `\\u${code}`;
    });
    nodes.push(h("span", { class: "escape" }, codes.join("")));
    end = match.index + match[0].length;
  }
  if (end < text.length) nodes.push(text.slice(end));
  return nodes;
}

/** A text of another party, isolated from the direction of the text around it. */
export function foreign(text, className = "") {
  return h("bdi", { class: className || null }, spelled(String(text), UNSEEN_IN_NAME));
}

/** The start of a text, which ends with a whole character. */
export const startOf = (text, length) => text.slice(0, /[\ud800-\udbff]/.test(text.charAt(length - 1)) ? length - 1 : length);

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1, notation: "compact" });

/** A count with separators. */
export const count = (number) => (typeof number === "number" ? whole.format(number) : String(number));
/** A count in a few characters. */
export const compact = (number) => (number < 10_000 ? count(number) : short.format(number));
/** A count with its noun. */
export const counted = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** The verb for a number of things. */
export const are = (number, one = "is", many = "are") => (number === 1 ? one : many);

/** A number of changes per second. */
export function rate(perSecond) {
  if (perSecond === null || perSecond === undefined) return "–";
  if (perSecond === 0) return "0";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1000]];

/** A time span in its two largest units. */
export function span(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const first = UNITS.findIndex(([, size]) => ms >= size);
  const [unit, size] = UNITS[first];
  const rest = UNITS[first + 1];
  const left = rest ? Math.floor((ms % size) / rest[1]) : 0;
  return `${Math.floor(ms / size)} ${unit}${left ? ` ${left} ${rest[0]}` : ""}`;
}

/** A number of bytes. */
export function bytes(number) {
  if (number < 1024) return `${number} B`;
  const power = Math.min(4, Math.floor(Math.log2(number) / 10));
  return `${(number / 1024 ** power).toFixed(1)} ${" KMGT"[power]}iB`;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });

/** A text that stands for an instant, with UTC as its title. */
const instantText = (instant, text) => h("time", { datetime: instant, title: `${instant.replace("T", " ").replace("Z", "")} UTC` }, text);

/** An instant in local time. Instants of another day have the day. */
export function time(instant) {
  const date = new Date(instant);
  if (!instant || Number.isNaN(date.getTime())) return h("span", { class: "muted" }, "–");
  const isToday = date.toDateString() === new Date(now()).toDateString();
  const text = isToday ? clock.format(date) : `${day.format(date)}, ${clock.format(date)}`;
  return instantText(instant, text);
}

/** How long ago an instant is. */
export const ago = (instant) => instantText(instant, `${span(now() - new Date(instant))} ago`);

let announcer = null;
/** Says a text to screen readers. */
export function announce(text) {
  announcer ??= document.getElementById("announcer");
  announcer.textContent = text;
}

/** A text that matters less. */
export const muted = (...content) => h("span", { class: "muted" }, content);

/** A paragraph for what went wrong, which screen readers say at once. */
export const problemLine = () => h("p", { class: "error", role: "alert" });

/** A button. */
export const button = (text, onclick, properties = null) => h("button", { type: "button", onclick, ...properties }, text);

/** A field to search with. */
export const searchField = (text, value, oninput, properties = null) => h("input", { type: "search", placeholder: text, "aria-label": text, value: value ?? "", spellcheck: "false", oninput, ...properties });
