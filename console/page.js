// A page that reads the same list again and again. It keeps what it shows while a read fails and may succeed later.

import { may } from "./api.js";
import { count, counted, foreign, h, searchField, seen, setText, show, showAgain } from "./dom.js";
import { poll } from "./live.js";
import { failure, loading, stale, state } from "./states.js";
import { listTable } from "./table.js";

const EVERY = 4000;

/** The queues that could not be read, each with the reason. */
export const unread = (queues) => (queues ?? []).map((queue) => h("p", { class: "strip" }, "Queue ", foreign(queue.name), " can't be read: ", foreign(queue.detail)));

/** What the caller may not do to a queue, in a sentence; null if it may do all of it. */
export function readOnlyNote(who, queue, verbs) {
  const missing = verbs.filter((verb) => !may(who, verb, queue));
  return missing.length === 0 ? null : h("p", { class: "note" }, `${missing.length < verbs.length ? "T" : "Read only: t"}he token `, foreign(who.name), ` has no grant of ${missing.join(" and ")} on this queue.`);
}

/** A button for a call on a queue that needs a grant of `verb`. Its failure is shown in `problem`. */
export function actionButton({ text, kind = null, verb = "admin", isPermitted, problem, signal }, act) {
  return h("button", {
    type: "button", class: kind, disabled: !isPermitted, title: isPermitted ? null : `The token has no grant of ${verb} on this queue`,
    onclick: async () => {
      setText(problem, "");
      try {
        await act();
      } catch (error) {
        if (!signal.aborted) show(problem, seen(error.message));
      }
    },
  }, text);
}

/** Shows `content`, which `update` fills, or the state that it returns if there is nothing to list. Returns a function that reads at once. */
export function listPage({ body, signal, reload }, { every, what, content, read, update }) {
  const strip = h("div");
  const place = h("div");
  let isShown = false;
  show(body, loading(`Reading ${what}`));
  return poll(async () => {
    const data = await read();
    if (!isShown) show(body, strip, place);
    isShown = true;
    show(strip, unread(data.unavailable));
    const instead = update(data);
    const wanted = instead ? [instead] : content;
    if (instead || place.firstChild !== wanted[0]) show(place, wanted);
  }, {
    every, signal,
    onFailure: (error, goesOn) => {
      if (goesOn && isShown) {
        show(strip, stale(error));
      } else {
        isShown = false;
        show(body, failure(error, reload));
      }
    },
  });
}

/** A list of `columns` of `listTable` with a search in `textOf`, and a sentence about what needs attention, which comes first. */
export function searchPage(context, { what, noun, read, columns, textOf, isWrong, wrongText, sentenceOf, empty, explains = null }) {
  const { body, query, signal, setQuery, reload } = context;
  const present = { ...query };
  let all = [];
  let hasMore = false;
  const find = searchField(`Find a ${noun}`, present.find, () => change({ find: find.value || null }), { "data-find": true });
  const only = h("input", { type: "checkbox", checked: present.only === "wrong", onchange: () => change({ only: only.checked ? "wrong" : null }, true) });
  const sentence = h("p", { class: "sentence" });
  const found = h("p", { class: "muted" });
  const rows = h("div");
  function change(values, isStep) {
    Object.assign(present, values);
    setQuery(present, isStep);
    render();
  }
  function render() {
    const text = (present.find ?? "").toLowerCase();
    const wanted = all.filter((one) => (present.only !== "wrong" || isWrong(one)) && textOf(one).toLowerCase().includes(text));
    showAgain(rows, wanted.length > 0 ? listTable(context.title.textContent, columns, wanted).element : state("empty", "Nothing matches", `No ${noun} has this name${present.only === "wrong" ? " and needs attention." : "."}`));
    setText(found, wanted.length === all.length ? `${counted(all.length, noun)}${hasMore ? ", and there are more" : ""}` : `${count(wanted.length)} of ${counted(all.length, noun)}`);
  }
  listPage({ body, signal, reload }, {
    every: EVERY, what, read,
    content: [sentence, explains && h("p", { class: "muted" }, explains), h("div", { class: "bar" }, find, h("label", { class: "check" }, only, wrongText), found), rows],
    update: (data) => {
      if (data.isUnknown) return state("empty", "This server does not report them", "The server has no such operation. The page of each queue lists its sources.");
      all = [...data.items].sort((a, b) => isWrong(b) - isWrong(a));
      hasMore = data.hasMore;
      if (all.length === 0) return empty();
      const wrong = all.filter(isWrong);
      sentence.classList.toggle("alarm", wrong.length > 0);
      setText(sentence, sentenceOf(all, wrong));
      render();
      return null;
    },
  });
}
