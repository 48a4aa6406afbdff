// The frame: the present place, its view, the header.

import { forgetCaller, hasToken, onTokenNeeded, setToken } from "./api.js";
import { askForToken, closeDialogs, showHelp } from "./dialogs.js";
import { announce, foreign, h, setText, show } from "./dom.js";
import { groupsView } from "./groups.js";
import { keyView } from "./key.js";
import { listen } from "./keyboard.js";
import { keysView } from "./keys.js";
import { live, onState, setLive } from "./live.js";
import { parkedView } from "./parked.js";
import { queueView } from "./queue.js";
import { queuesView } from "./queues.js";
import { href, placeOf, toGroups, toKeys, toParked, toQueue, toQueues, toTail } from "./routes.js";
import { failure, state } from "./states.js";
import { ofVisits } from "./storage.js";
import { tabs } from "./table.js";
import { tailView } from "./tail.js";

const VIEWS = { queues: queuesView, overview: queueView, keys: keysView, key: keyView, parked: parkedView, groups: groupsView, tail: tailView };
const TITLES = { queues: "Queues", overview: "Overview", keys: "Keys", key: "Key", parked: "Parked", groups: "Groups", tail: "Changes" };

const main = document.getElementById("main");
let place = null;
let ending = new AbortController();

/** What the header shows of a place. */
function crumbs({ view, queue, key }) {
  const links = [h("a", { href: toQueues(), "aria-current": view === "queues" ? "page" : null }, "Queues")];
  if (queue !== undefined) links.push(h("a", { href: toQueue(queue) }, foreign(queue)));
  if (key !== undefined) links.push(h("a", { href: toKeys(queue) }, "Keys"));
  show(document.getElementById("crumbs"), h("ol", null, links.map((link) => h("li", null, link))));
}

/** The heading of a view, and the tabs of its queue. */
function frameOf({ view, queue, key }) {
  const name = key ?? queue;
  const title = h("h1", { tabindex: "-1" }, name === undefined ? TITLES[view] : foreign(name, key === undefined ? "" : "key"));
  const head = h("div", { class: "head" }, h("div", { class: "title" }, title));
  const body = h("div", { class: "view" });
  const strip = queue === undefined ? null : tabs(`Queue ${queue}`, [
    ["Overview", toQueue(queue), view === "overview"],
    ["Keys", toKeys(queue), view === "keys" || view === "key"],
    ["Parked", toParked(queue), view === "parked"],
    ["Groups", toGroups(queue), view === "groups"],
    ["Changes", toTail(queue), view === "tail"],
  ]);
  show(main, head, strip, body);
  document.title = [key, queue, TITLES[view], "deltaq"].filter((part) => part !== undefined).join(" · ");
  return { title, head, body };
}

function open() {
  const next = placeOf(location.hash);
  ending.abort();
  closeDialogs();
  forgetCaller();
  ending = new AbortController();
  const { signal } = ending;
  const isFirst = place === null;
  place = next;
  if (next === null) {
    const title = h("h1", { tabindex: "-1" }, "There is no such page");
    document.title = "There is no such page · deltaq";
    crumbs({ view: null });
    show(main, h("div", { class: "head" }, h("div", { class: "title" }, title)), state("empty", "The link is wrong or incomplete", "", h("a", { class: "button", href: toQueues() }, "All queues")));
    if (!isFirst) title.focus({ preventScroll: true });
    return;
  }
  crumbs(next);
  // The list of keys is read once, and says when.
  document.getElementById("live").hidden = next.view === "keys";
  const frame = frameOf(next);
  scrollTo(0, 0);
  if (!isFirst) frame.title.focus({ preventScroll: true });
  announce(document.title);
  /** Writes the query of the place without leaving it. */
  const setQuery = (query, isStep = false) => {
    const { view, queue, key } = next;
    const tail = view === "overview" ? [] : view === "key" ? ["keys", key] : [view];
    const target = href(view === "queues" ? ["queues"] : ["queues", queue, ...tail], query);
    if (target === location.hash) return;
    next.query = query;
    history[isStep ? "pushState" : "replaceState"](null, "", target);
  };
  const context = { ...next, ...frame, signal, setQuery, reload: open };
  Promise.resolve(VIEWS[next.view](context)).catch((error) => {
    if (!signal.aborted) show(frame.body, failure(error, open));
  });
}

function showAccount() {
  document.getElementById("account").hidden = !hasToken();
}

function useToken(text) {
  setToken(text);
  showAccount();
  open();
}

function toggleLive() {
  setLive(!live());
  announce(live() ? "Live" : "Paused");
}

const THEME = "deltaq-theme";
const THEMES = { auto: "Auto theme", light: "Light theme", dark: "Dark theme" };
function setTheme(theme) {
  ofVisits.set(THEME, theme);
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  setText(document.getElementById("theme"), THEMES[theme]);
}

function start() {
  const stored = ofVisits.get(THEME);
  setTheme(stored in THEMES ? stored : "auto");
  document.getElementById("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    setTheme(names[(names.indexOf(ofVisits.get(THEME)) + 1) % names.length]);
  });
  const button = document.getElementById("live");
  onState((now) => {
    button.dataset.state = now;
    button.setAttribute("aria-pressed", String(now !== "paused"));
    setText(document.getElementById("live-text"), { live: "Live", paused: "Paused", waiting: "Reconnecting", stopped: "Stopped" }[now]);
  });
  button.addEventListener("click", toggleLive);
  document.getElementById("help").addEventListener("click", showHelp);
  document.getElementById("account").addEventListener("click", () => askForToken("Enter another token, or forget the present one.", useToken, () => useToken(null)));
  onTokenNeeded((why) => askForToken(why, useToken));
  listen({ placeNow: () => place, toggleLive, reload: open });
  addEventListener("hashchange", open);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  showAccount();
  open();
}

start();
