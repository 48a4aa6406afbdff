// The groups of a queue that take turns: their keys, leases and shares, and a pause of each.

import { get, may, post, queuePath, whoami } from "./api.js";
import { announce, count, counted, foreign, h, muted, problemLine, seen, setText, show, span } from "./dom.js";
import { listPage, readOnlyNote } from "./page.js";
import { toSettings } from "./routes.js";
import { state } from "./states.js";
import { table, textCell } from "./table.js";

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
    const name = group.name === null ? muted("without a name") : foreign(group.name);
    return { element: h("tr", null, h("th", { scope: "row" }, name), ready.element, leased.element, oldest.element, weight.element, rate.element, word.element, h("td", null, button)), update };
  };
}

export function groupsView({ queue, query, body, signal, reload, setQuery }) {
  let isPermitted = false;
  let sort = SORTS.includes(query.sort) ? query.sort : "wait";
  const problem = problemLine();
  const found = h("p", { class: "sentence" });
  const readOnly = h("div");
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

  const refresh = listPage({ body, signal, reload }, {
    every: EVERY, what: "the groups", content: [found, readOnly, problem, h("div", { class: "scroll" }, rows.element)],
    read: async () => {
      const [now, who] = await Promise.all([get(queuePath(queue, "groups"), { query: { sort }, signal }), whoami()]);
      return { now, who };
    },
    update: ({ now, who }) => {
      isPermitted = may(who, "admin", queue);
      show(readOnly, readOnlyNote(who, queue, ["admin"]));
      if (now.count === 0) return state("empty", "The queue has no groups", "With the setting groups, tenants of a queue take turns.", h("a", { class: "button", href: toSettings(queue) }, "Settings"));
      const all = counted(now.count, "group");
      setText(found, now.count > now.groups.length ? `${all}; the first ${count(now.groups.length)}:` : all);
      rows.mark(sort, true);
      rows.update(now.groups);
      return null;
    },
  });
}
