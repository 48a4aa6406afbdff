// The frame: the present place, its view, the header.

import { activityView } from "./activity.js";
import { forgetCaller, hasToken, onTokenNeeded, setToken } from "./api.js";
import { askForToken, closeDialogs, showHelp } from "./dialogs.js";
import { announce, foreign, h, setText, show } from "./dom.js";
import { endpointsView } from "./endpoints.js";
import { findView } from "./find.js";
import { groupsView } from "./groups.js";
import { keyView } from "./key.js";
import { listen } from "./keyboard.js";
import { keysView } from "./keys.js";
import { live, onState, setLive } from "./live.js";
import { nodesView } from "./nodes.js";
import { parkedView } from "./parked.js";
import { queueView } from "./queue.js";
import { queuesView } from "./queues.js";
import { PAGES, placeOf, toFind, toGroups, toKeys, toPage, toParked, toPlace, toQueue, toQueues, toSettings, toTail } from "./routes.js";
import { reflectorsView, sourcesView } from "./sources.js";
import { settingsView } from "./settings.js";
import { failure, state } from "./states.js";
import { ofVisits } from "./storage.js";
import { tabs } from "./table.js";
import { tailView } from "./tail.js";
import { workersView } from "./workers.js";

const VIEWS = {
  queues: queuesView, find: findView, sources: sourcesView, reflectors: reflectorsView, workers: workersView, endpoints: endpointsView, nodes: nodesView, activity: activityView,
  overview: queueView, keys: keysView, key: keyView, parked: parkedView, groups: groupsView, settings: settingsView, tail: tailView,
};
/** The tabs of a queue. */
const TABS = [["overview", "Overview", toQueue], ["keys", "Keys", toKeys], ["parked", "Parked", toParked], ["groups", "Groups", toGroups], ["settings", "Settings", toSettings], ["tail", "Changes", toTail]];
const TITLES = { ...Object.fromEntries([...PAGES, ...TABS]), find: "Find", key: "Key" };
/** Views that are read once. */
const SNAPSHOTS = ["keys", "find", "settings", "activity"];

const main = document.getElementById("main");
let place = null;
let ending = new AbortController();

/** The pages in the header, of which one is current. */
function showPages({ view, queue }) {
  const present = queue === undefined ? view : "queues";
  show(document.getElementById("pages"), PAGES.map(([page, title]) => h("a", { href: toPage(page), "aria-current": page === present ? (queue === undefined ? "page" : "true") : null }, title)));
}

/** Where the page of a key is. */
function crumbs({ queue, key }) {
  if (key === undefined) return null;
  const links = [h("a", { href: toQueue(queue) }, foreign(queue)), h("a", { href: toKeys(queue) }, "Keys")];
  return h("nav", { class: "crumbs", "aria-label": "Place" }, h("ol", null, links.map((link) => h("li", null, link))));
}

/** The heading of a view, and the tabs of its queue. */
function frameOf(place) {
  const { view, queue, key } = place;
  const name = key ?? queue;
  const title = h("h1", { tabindex: "-1" }, name === undefined ? TITLES[view] : foreign(name, key === undefined ? "" : "key"));
  const head = h("div", { class: "head" }, h("div", { class: "title" }, title));
  const body = h("div", { class: "view" });
  const strip = queue === undefined ? null : tabs(`Queue ${queue}`, TABS.map(([tab, text, to]) => [text, to(queue), tab === (view === "key" ? "keys" : view)]));
  show(main, crumbs(place), head, strip, body);
  for (const link of document.querySelectorAll("nav [aria-current]")) link.scrollIntoView({ block: "nearest" });
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
    showPages({ view: null });
    show(main, h("div", { class: "head" }, h("div", { class: "title" }, title)), state("empty", "The link is wrong or incomplete", "", h("a", { class: "button", href: toQueues() }, "All queues")));
    if (!isFirst) title.focus({ preventScroll: true });
    return;
  }
  showPages(next);
  // A view that is read once says when.
  document.getElementById("live").hidden = SNAPSHOTS.includes(next.view);
  const frame = frameOf(next);
  scrollTo(0, 0);
  if (!isFirst) frame.title.focus({ preventScroll: true });
  announce(document.title);
  /** Writes the query of the place without leaving it. */
  const setQuery = (query, isStep = false) => {
    const target = toPlace(next, query);
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
  const find = document.getElementById("find");
  document.getElementById("finder").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = find.value.trim();
    if (text === "") return;
    if (location.hash === toFind(text)) open();
    else location.hash = toFind(text);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  showAccount();
  open();
}

start();
