// The groups of a queue that take turns: their keys, leases and shares, and a pause of each.

import { get, may, post, queuePath, whoami } from "./api.js";
import { announce, count, counted, foreign, h, seen, setText, show, span } from "./dom.js";
import { poll } from "./live.js";
import { toQueue } from "./routes.js";
import { failure, loading, stale, state } from "./states.js";
import { number, table, textCell } from "./table.js";

const EVERY = 2000;
const SORTS = ["wait", "ready", "leased"];
const COLUMNS = [{ title: "Group" }, { title: "Ready", isNumber: true, sort: "ready" }, { title: "Leased", isNumber: true, sort: "leased" },
  { title: "Oldest ready", isNumber: true, sort: "wait" }, { title: "Weight", isNumber: true }, { title: "Rate", isNumber: true }, { title: "State" }, { title: "Delivery", isNarrow: true }];

function stateOf(group) {
  if (group.paused) return "paused";
  if (group.held_until) return "held";
  if (group.next_delivery_at) return "limited by its rate";
  if (group.is_full) return "at its limit";
  return group.ready > 0 ? "takes turns" : "nothing is ready";
}

/** A row. `act` pauses or resumes a group. */
function createRow(act, isPermitted) {
  return (group) => {
    const cell = (properties) => textCell("td", properties);
    const [ready, leased, oldest, weight, rate] = Array.from({ length: 5 }, () => cell({ class: "number" }));
    const word = cell();
    let now = group;
    const button = h("button", { type: "button", onclick: () => act(now) });
    const update = (next) => {
      now = next;
      ready.set(count(now.ready));
      leased.set(now.max_leased === null ? count(now.leased) : `${count(now.leased)} of ${count(now.max_leased)}`);
      oldest.set(now.oldest_ready_age_ms === null ? "–" : span(now.oldest_ready_age_ms));
      weight.set(count(now.weight));
      rate.set(now.rate === null ? "–" : `${now.rate.per_second} a second`);
      word.set(stateOf(now));
      setText(button, now.paused || now.held_until ? "Resume" : "Pause");
      button.disabled = !isPermitted();
    };
    update(group);
    const name = group.name === null ? h("span", { class: "muted" }, "without a name") : foreign(group.name);
    return { element: h("tr", null, h("th", { scope: "row" }, name), ready.element, leased.element, oldest.element, weight.element, rate.element, word.element, h("td", null, button)), update };
  };
}

export function groupsView({ queue, query, body, signal, reload, setQuery }) {
  show(body, loading("Reading the groups"));
  let isPermitted = false;
  let isShown = false;
  let sort = SORTS.includes(query.sort) ? query.sort : "wait";
  const strip = h("div");
  const problem = h("p", { class: "error", role: "alert" });
  const found = h("p", { class: "sentence" });
  const readOnly = h("p", { class: "note", hidden: true });
  const rows = table({
    caption: "Groups", columns: COLUMNS, keyOf: (group) => group.name ?? "",
    create: createRow(act, () => isPermitted),
    onSort: (name) => {
      sort = name;
      setQuery({ sort });
      refresh();
    },
  });

  async function act(group) {
    setText(problem, "");
    const isStopped = group.paused || group.held_until;
    try {
      await post(queuePath(queue, isStopped ? "resume" : "pause"), { body: { group: group.name ?? "" }, signal });
      announce(isStopped ? "The group is resumed" : "The group is paused");
      refresh();
    } catch (error) {
      if (!signal.aborted) show(problem, seen(error.message));
    }
  }

  async function read() {
    const [now, who] = await Promise.all([get(queuePath(queue, "groups"), { query: { sort }, signal }), whoami()]);
    isPermitted = may(who, "admin", queue);
    readOnly.hidden = isPermitted;
    if (!isPermitted) show(readOnly, "Read only: the token ", foreign(who.name), " has no grant of admin on this queue.");
    show(strip);
    if (now.count === 0) {
      isShown = false;
      show(body, state("empty", "The queue has no groups", "With the setting groups, tenants of a queue take turns.", h("a", { class: "button", href: toQueue(queue) }, "Overview")));
      return;
    }
    if (!isShown) show(body, strip, found, readOnly, problem, h("div", { class: "scroll" }, rows.element));
    isShown = true;
    const all = counted(now.count, "group");
    setText(found, now.count > now.groups.length ? `${all}; the first ${count(now.groups.length)}:` : all);
    rows.mark(sort, true);
    rows.update(now.groups);
  }
  const refresh = poll(read, {
    every: EVERY, signal,
    onFailure: (error, goesOn) => {
      if (goesOn && isShown) show(strip, stale(error));
      else show(body, failure(error, reload));
    },
  });
}
