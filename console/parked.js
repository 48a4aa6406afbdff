// The parked keys of a queue by their errors: redrive or discard some errors, or all.

import { get, may, post, postOnce, queuePath, whoami } from "./api.js";
import { confirm } from "./dialogs.js";
import { announce, count, counted, foreign, h, seen, setText, show } from "./dom.js";
import { poll } from "./live.js";
import { toKey, toKeys } from "./routes.js";
import { failure, loading, stale, state } from "./states.js";
import { number, table, textCell } from "./table.js";

const EVERY = 2000;
const ERRORS_SHOWN = 200;
const PROGRESS_EVERY = 400;
/** A longer error does not fit into the URL of a call. */
const ERROR_IN_URL_MAX = 6000;

const plural = (number, one, many) => (number === 1 ? one : many);
const errorText = (error) => (error === "" ? h("span", { class: "muted" }, "without an error") : foreign(error));

const COLUMNS = [{ title: "Choose", isNarrow: true }, { title: "Error" }, { title: "Keys", isNumber: true }, { title: "First key" }];

function createRow(queue, chosen, onChoose) {
  return (group) => {
    const keys = textCell("td", { class: "number" });
    const box = h("input", { type: "checkbox", checked: chosen.has(group.error), "aria-label": `Choose the error ${group.error || "(none)"}`, onchange: () => onChoose(group.error, box.checked) });
    const isShort = encodeURIComponent(group.error).length < ERROR_IN_URL_MAX;
    const error = isShort ? h("a", { class: "row", href: toKeys(queue, { state: "parked", error: group.error === "" ? null : group.error }) }, errorText(group.error)) : errorText(group.error);
    const first = h("td");
    let shownKey = null;
    const update = (now) => {
      keys.set(count(now.keys));
      box.checked = chosen.has(now.error);
      if (shownKey !== now.first_key) show(first, h("a", { href: toKey(queue, now.first_key) }, foreign(now.first_key, "key")));
      shownKey = now.first_key;
    };
    update(group);
    return { element: h("tr", { class: "pick" }, h("td", null, box), h("th", { scope: "row", class: "error-text" }, error), keys.element, first), update };
  };
}

/** What becomes of keys that were redriven: read from the counts of the queue until nothing moves. */
function progressOf(place, queue, before, total, verb, signal) {
  const bar = h("progress", { max: total, value: 0, "aria-label": verb });
  const text = h("p", { role: "status" });
  show(place, h("section", { class: "progress" }, h("h2", null, verb), bar, text));
  let isDone = false;
  let ended = 0;
  const read = async () => {
    const { parked, ready, delayed, leased } = await get(queuePath(queue, "status"), { signal });
    const moved = isDone ? ended : Math.min(total, Math.max(0, before - parked));
    bar.value = moved;
    setText(text, `${count(moved)} of ${counted(total, "key")}. Now ${count(ready)} ready, ${count(leased)} leased, ${count(delayed)} delayed, ${count(parked)} parked.`);
  };
  const timer = new AbortController();
  signal.addEventListener("abort", () => timer.abort(), { once: true });
  poll(read, { every: PROGRESS_EVERY, signal: timer.signal, onFailure: () => {} });
  return {
    /** The call has ended: the counts of the queue are shown for as long as the page is open. */
    end: (keys) => {
      isDone = true;
      ended = keys;
      bar.max = Math.max(1, keys);
      bar.value = keys;
    },
    fail: () => { timer.abort(); show(place); },
  };
}

export async function parkedView({ queue, body, signal, reload }) {
  show(body, loading("Reading the parked keys"));
  const who = await whoami().catch(() => null);
  if (signal.aborted) return;
  const isPermitted = may(who, "admin", queue);
  const chosen = new Set();
  let groups = [];
  let total = 0;

  const strip = h("div");
  const problem = h("p", { class: "error", role: "alert" });
  const progress = h("div");
  const found = h("p", { class: "sentence" });
  const note = h("p", { class: "muted" });
  const title = isPermitted ? null : "The token has no grant of admin on this queue";
  const button = (text, kind, onclick) => h("button", { type: "button", class: kind, title, disabled: true, onclick }, text);
  const redrive = button("Redrive", "primary", () => act("redrive"));
  const discard = button("Discard…", "danger", () => act("discard"));
  const all = h("input", { type: "checkbox", onchange: () => {
    chosen.clear();
    if (all.checked) for (const group of groups) chosen.add(group.error);
    render();
  } });
  const rows = table({
    caption: "Errors of parked keys", columns: COLUMNS, keyOf: (group) => group.error, onSort: () => {},
    create: createRow(queue, chosen, (error, isChosen) => {
      if (isChosen) chosen.add(error);
      else chosen.delete(error);
      render();
    }),
  });
  const readOnly = !isPermitted && h("p", { class: "note" }, "Read only: the token ", foreign(who.name), " has no grant of admin on this queue.");
  const content = [strip, found, readOnly, h("div", { class: "bar" }, h("label", { class: "check" }, all, "All"), redrive, discard), problem, progress, h("div", { class: "scroll" }, rows.element), note];

  /** The chosen groups, and the number of their keys. Everything is chosen if nothing else is. */
  function choice() {
    const isAll = chosen.size === 0 || all.checked;
    const wanted = isAll ? groups : groups.filter((group) => chosen.has(group.error));
    const keys = isAll ? total : wanted.reduce((sum, group) => sum + group.keys, 0);
    return { isAll, wanted, keys };
  }

  function render() {
    for (const error of chosen) if (!groups.some((group) => group.error === error)) chosen.delete(error);
    rows.update(groups);
    all.checked = chosen.size > 0 && groups.length > 0 && groups.every((group) => chosen.has(group.error));
    all.indeterminate = chosen.size > 0 && !all.checked;
    const { keys } = choice();
    setText(redrive, `Redrive ${counted(keys, "key")}`);
    setText(discard, `Discard ${counted(keys, "key")}…`);
    redrive.disabled = discard.disabled = !isPermitted || keys === 0;
    const errors = groups.length === ERRORS_SHOWN ? `at least ${count(ERRORS_SHOWN)} errors` : counted(groups.length, "error");
    setText(found, `${counted(total, "parked key")} with ${errors}`);
  }

  async function act(verb) {
    const { isAll, wanted, keys } = choice();
    const what = isAll ? `all ${counted(keys, "parked key")}` : `${counted(keys, "key")} with ${wanted.length === 1 ? "this error" : `these ${count(wanted.length)} errors`}`;
    const isDiscard = verb === "discard";
    let watched = null;
    const done = isDiscard ? "Discarding" : "Redriving";
    const run = () => {
      // The dialog closes at once; the progress shows the rest.
      watched = progressOf(progress, queue, total, keys, `${done} ${counted(keys, "key")}`, signal);
      return true;
    };
    const go = await confirm({
      title: isDiscard ? `Discard ${what}?` : `Redrive ${what}?`,
      expected: isDiscard ? queue : null,
      action: `${isDiscard ? "Discard" : "Redrive"} ${counted(keys, "key")}`,
      text: [
        h("p", null, isDiscard ? `The changes of ${plural(keys, "this key", "these keys")} are dropped. No worker gets them.` : `Workers get ${plural(keys, "it", "them")} again, with no failures counted.`),
        !isAll && h("ul", { class: "errors" }, wanted.slice(0, 5).map((group) => h("li", null, errorText(group.error), h("span", { class: "muted" }, ` ${counted(group.keys, "key")}`))), wanted.length > 5 && h("li", { class: "muted" }, `and ${count(wanted.length - 5)} more`)),
      ],
      act: run,
    });
    if (!go) return;
    setText(problem, "");
    try {
      const patience = 300_000;
      let changed = 0;
      const send = isDiscard ? postOnce : post;
      if (isAll) {
        changed = (await send(queuePath(queue, "parked", verb), { signal, patience })).keys;
      } else {
        for (const group of wanted) changed += (await send(queuePath(queue, "parked", verb), { body: { error: group.error }, signal, patience })).keys;
      }
      watched.end(changed);
      chosen.clear();
      announce(`${isDiscard ? "Discarded" : "Redriven"}: ${counted(changed, "key")}`);
      refresh();
    } catch (error) {
      if (signal.aborted) return;
      watched.fail();
      show(problem, seen(error.message));
    }
  }

  let isShown = false;
  const refresh = poll(async () => {
    const read = await get(queuePath(queue, "parked"), { query: { limit: ERRORS_SHOWN }, signal });
    groups = read.items;
    total = groups.reduce((sum, group) => sum + group.keys, read.other_keys);
    show(strip);
    if (total === 0 && progress.childElementCount === 0) {
      isShown = false;
      show(body, state("empty", "No key is parked", "A key is parked when it has failed too often, or when a worker rejects it.", h("a", { class: "button", href: toKeys(queue) }, "Keys")));
      return;
    }
    if (!isShown) show(body, content);
    isShown = true;
    setText(note, read.other_keys > 0 ? `${counted(read.other_keys, "key")} with other errors ${plural(read.other_keys, "is", "are")} not listed; “All” includes ${plural(read.other_keys, "it", "them")}.` : "");
    render();
  }, {
    every: EVERY, signal,
    onFailure: (error) => {
      if (isShown && error.status !== 404 && error.status !== 403) show(strip, stale(error));
      else show(body, failure(error, reload));
    },
  });
}
