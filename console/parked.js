// The parked keys of a queue by their errors: redrive or discard some errors, or all.

import { get, may, post, postOnce, queuePath, whoami } from "./api.js";
import { confirm } from "./dialogs.js";
import { announce, are, count, counted, foreign, h, muted, problemLine, seen, setText, show } from "./dom.js";
import { poll } from "./live.js";
import { actionButton, readOnlyNote } from "./page.js";
import { toKey, toKeys } from "./routes.js";
import { failure, loading, stale, state } from "./states.js";
import { number, table, textCell } from "./table.js";

const EVERY = 2000;
const ERRORS_SHOWN = 200;
const PROGRESS_EVERY = 400;
/** A longer error does not fit into the URL of a call. */
const ERROR_IN_URL_MAX = 6000;

const errorText = (error) => (error === "" ? muted("without an error") : foreign(error));

const COLUMNS = [{ title: "Choose", isNarrow: true }, { title: "Error" }, { title: "Keys", isNumber: true }, { title: "First key" }];

function createRow(queue, isChosen, onChoose) {
  return (group) => {
    const keys = textCell("td", { class: "number" });
    const box = h("input", { type: "checkbox", "aria-label": `Choose the error ${group.error || "(none)"}`, onchange: () => onChoose(group.error, box.checked) });
    const isShort = encodeURIComponent(group.error).length < ERROR_IN_URL_MAX;
    const error = isShort ? h("a", { class: "row", href: toKeys(queue, { state: "parked", error: group.error }) }, errorText(group.error)) : errorText(group.error);
    const first = h("td");
    let shownKey = null;
    const update = (now) => {
      keys.set(count(now.keys));
      box.checked = isChosen(now.error);
      if (shownKey !== now.first_key) show(first, h("a", { href: toKey(queue, now.first_key) }, foreign(now.first_key, "key")));
      shownKey = now.first_key;
    };
    update(group);
    return { element: h("tr", { class: "pick" }, h("td", null, box), h("th", { scope: "row", class: "error-text" }, error), keys.element, first), update };
  };
}

/** The progress of a call on many keys of a state, from the counts of the queue. */
export function progressOf({ place, queue, state: from = "parked", total, title, signal }) {
  const heading = h("h2", null, title);
  const bar = h("progress", { max: total, value: 0, "aria-label": title });
  const text = h("p", { role: "status" });
  show(place, h("section", { class: "progress" }, heading, bar, text));
  const timer = new AbortController();
  signal.addEventListener("abort", () => timer.abort(), { once: true });
  const render = ({ parked, ready, delayed, leased }, moved) => {
    bar.value = moved;
    setText(text, `${count(moved)} of ${counted(bar.max, "key")}. Now ${count(ready)} ready, ${count(leased)} leased, ${count(delayed)} delayed, ${count(parked)} parked.`);
  };
  let before = null;
  poll(async () => {
    const status = await get(queuePath(queue, "status"), { signal: timer.signal });
    before ??= status[from];
    if (!timer.signal.aborted) render(status, Math.min(total, Math.max(0, before - status[from])));
  }, { every: PROGRESS_EVERY, signal: timer.signal, onFailure: () => {} });
  /** The call has ended after so many keys; `what` is null if it failed. */
  return async (keys, what) => {
    timer.abort();
    if (what === null) {
      show(place);
      return;
    }
    setText(heading, what);
    bar.setAttribute("aria-label", what);
    bar.max = Math.max(keys, 1);
    bar.value = keys;
    setText(text, `${count(keys)} of ${counted(bar.max, "key")}.`);
    await get(queuePath(queue, "status"), { signal }).then((status) => render(status, keys), () => {});
  };
}

export function parkedView({ queue, body, signal, reload }) {
  show(body, loading("Reading the parked keys"));
  let isPermitted = false;
  let isAll = false;
  const chosen = new Set();
  let groups = [];
  let total = 0;

  const strip = h("div");
  const problem = problemLine();
  const progress = h("div");
  const found = h("p", { class: "sentence" });
  const note = h("p", { class: "muted" });
  const readOnly = h("div");
  const button = (text, kind, verb) => actionButton({ text, kind, isPermitted: false, problem, signal }, () => attempt(verb));
  const redrive = button("Redrive", "primary", "redrive");
  const discard = button("Discard…", "danger", "discard");
  const all = h("input", { type: "checkbox", onchange: () => {
    isAll = all.checked;
    chosen.clear();
    render();
  } });
  const rows = table({
    caption: "Errors of parked keys", columns: COLUMNS, keyOf: (group) => group.error, onSort: () => {},
    create: createRow(queue, (error) => isAll || chosen.has(error), (error, isChosen) => {
      if (isAll) for (const group of groups) chosen.add(group.error);
      isAll = false;
      if (isChosen) chosen.add(error);
      else chosen.delete(error);
      render();
    }),
  });
  const content = [strip, found, readOnly, h("div", { class: "bar" }, h("label", { class: "check" }, all, "All"), redrive, discard), problem, progress, h("div", { class: "scroll" }, rows.element), note];

  /** The chosen groups, and the number of their keys. */
  function choice() {
    const wanted = groups.filter((group) => chosen.has(group.error));
    return { wanted, keys: isAll ? total : wanted.reduce((sum, group) => sum + group.keys, 0) };
  }

  function render() {
    for (const error of chosen) if (!groups.some((group) => group.error === error)) chosen.delete(error);
    rows.update(groups);
    all.checked = isAll;
    all.indeterminate = chosen.size > 0;
    const { keys } = choice();
    setText(redrive, keys === 0 ? "Redrive" : `Redrive ${counted(keys, "key")}`);
    setText(discard, keys === 0 ? "Discard…" : `Discard ${counted(keys, "key")}…`);
    redrive.disabled = discard.disabled = !isPermitted || keys === 0;
    const errors = groups.length === ERRORS_SHOWN ? `at least ${count(ERRORS_SHOWN)} errors` : counted(groups.length, "error");
    setText(found, `${counted(total, "parked key")} with ${errors}`);
  }

  async function attempt(verb) {
    // The numbers of the question are those of now, and not of the last read.
    const [{ settings }] = await Promise.all([get(queuePath(queue), { signal }), read()]);
    const { wanted, keys } = choice();
    if (keys === 0) return;
    const isEvents = settings.mode === "events";
    const of = `${counted(keys, isAll ? "parked key" : "key")} of ${queue}`;
    const what = isAll ? `all ${of}` : `${of} with ${wanted.length === 1 ? "this error" : `these ${count(wanted.length)} errors`}`;
    const isDiscard = verb === "discard";
    const [doing, done] = isDiscard ? ["Discarding", "Discarded"] : ["Redriving", "Redriven"];
    const isEverything = isAll;
    const go = await confirm({
      title: isDiscard ? `Discard ${what}?` : `Redrive ${what}?`,
      expected: isDiscard ? queue : null,
      action: `${isDiscard ? "Discard" : "Redrive"} ${counted(keys, "key")}`,
      text: [
        h("p", null, !isDiscard ? `Workers get ${are(keys, "it", "them")} again, with no failures counted.`
          : isEvents ? `The change that failed of ${are(keys, "this key", "each of these keys")} is dropped. No worker gets it. Later changes stay.`
            : `The changes of ${are(keys, "this key", "these keys")} are dropped. No worker gets them.`),
        !isEverything && h("ul", { class: "errors" }, wanted.slice(0, 5).map((group) => h("li", null, errorText(group.error), muted(` ${counted(group.keys, "key")}`))), wanted.length > 5 && h("li", { class: "muted" }, `and ${count(wanted.length - 5)} more`)),
      ],
      // The dialog closes at once; the progress shows the rest.
      act: () => true,
    });
    if (!go) return;
    setText(problem, "");
    const end = progressOf({ place: progress, queue, total: keys, title: `${doing} ${counted(keys, "key")}`, signal });
    const send = isDiscard ? postOnce : post;
    const path = queuePath(queue, "parked", verb);
    const patience = 300_000;
    let changed = 0;
    let failed = null;
    try {
      // A call is refused if it would concern another number of keys than the question.
      const selections = isEverything ? [{ all: true, expected_count: keys }] : wanted.map((group) => ({ error: group.error, expected_count: group.keys }));
      for (const body of selections) changed += (await send(path, { body, signal, patience })).keys;
    } catch (error) {
      failed = error;
    }
    if (signal.aborted) return;
    const asksAgain = failed?.code === "count-changed";
    if (!asksAgain) {
      chosen.clear();
      isAll = false;
    }
    announce(`${done}: ${counted(changed, "key")}`);
    refresh();
    if (failed) show(problem, seen(failed.message));
    await end(changed, `${done}: ${counted(changed, "key")}`);
    if (asksAgain) await attempt(verb);
  }

  let isShown = false;
  async function read() {
    const [now, who] = await Promise.all([get(queuePath(queue, "parked/errors"), { query: { limit: ERRORS_SHOWN }, signal }), whoami()]);
    isPermitted = may(who, "admin", queue);
    show(readOnly, readOnlyNote(who, queue, ["admin"]));
    redrive.title = discard.title = isPermitted ? "" : "The token has no grant of admin on this queue";
    groups = now.items;
    const listed = groups.reduce((sum, group) => sum + group.keys, 0);
    total = now.continue ? (await get(queuePath(queue, "status"), { signal })).parked : listed + now.other_keys;
    const others = total - listed;
    show(strip);
    if (total === 0 && progress.childElementCount === 0) {
      isShown = false;
      show(body, state("empty", "No key is parked", "A key is parked when it has failed too often, or when a worker rejects it.", h("a", { class: "button", href: toKeys(queue) }, "Keys")));
      return;
    }
    if (!isShown) show(body, content);
    isShown = true;
    setText(note, others > 0 ? `${counted(others, "key")} with other errors ${are(others, "is", "are")} not listed; “All” includes ${are(others, "it", "them")}.` : "");
    render();
  }
  const refresh = poll(read, {
    every: EVERY, signal,
    onFailure: (error, goesOn) => {
      if (goesOn && isShown) show(strip, stale(error));
      else show(body, failure(error, reload));
    },
  });
}
