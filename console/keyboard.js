// Keyboard shortcuts. They never act while a user types, in a dialog, or with Ctrl, Alt or Meta.

import { showHelp, usesKeys } from "./dialogs.js";
import { toGroups, toKeys, toPage, toParked, toQueue, toQueues, toSettings, toTail } from "./routes.js";

const PREFIX_MS = 1500;

/** The rows that `j` and `k` go through: the first link of each. */
const rows = () => [...document.querySelectorAll("main tbody tr a.row, main li a.row")].filter((row) => row.checkVisibility());

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const now = all.findIndex((row) => row.closest("tr, li").contains(document.activeElement));
  const next = all[now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + step))];
  next.focus();
  next.closest("tr, li").scrollIntoView({ block: "nearest" });
}

/** `placeNow` is the present place; `toggleLive` and `reload` are what `p` and `r` do. */
export function listen({ placeNow, toggleLive, reload }) {
  let goUntil = 0;
  const go = (key) => {
    const queue = placeNow()?.queue;
    const targets = { q: () => toQueues(), s: () => toPage("sources"), w: () => toPage("workers"), n: () => toPage("nodes"), a: () => toPage("activity"), ...(queue === undefined ? {} : { o: () => toQueue(queue), k: () => toKeys(queue), p: () => toParked(queue), g: () => toGroups(queue), e: () => toSettings(queue), t: () => toTail(queue) }) };
    if (targets[key]) location.hash = targets[key]();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const { target } = event;
    const isTyping = target.matches("input:not([type=checkbox]), textarea, select, [contenteditable]");
    if (isTyping && event.key === "Escape") target.blur();
    if (isTyping || !usesKeys() || document.querySelector("dialog[open]")) return;
    if (performance.now() < goUntil) {
      goUntil = 0;
      event.preventDefault();
      go(event.key);
      return;
    }
    const focus = (field) => () => { field.select(); field.focus(); };
    const everywhere = document.getElementById("find");
    const actions = {
      "/": focus(document.querySelector("main [data-find]") ?? everywhere),
      f: focus(everywhere),
      j: () => move(1),
      k: () => move(-1),
      g: () => { goUntil = performance.now() + PREFIX_MS; },
      p: toggleLive,
      r: reload,
      "?": showHelp,
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
