// One action on all keys of a list, by its filter: first the count, then the progress, then what has changed in between.

import { post, postOnce, queuePath } from "./api.js";
import { confirm } from "./dialogs.js";
import { announce, counted, h, muted, problemLine, seen, setText } from "./dom.js";
import { actionButton } from "./page.js";
import { progressOf } from "./parked.js";

const PATIENCE = 300_000;

/** The actions on the keys of a state. */
const ACTIONS = {
  __proto__: null,
  parked: [
    { text: "Redrive these keys…", path: "parked/redrive", verb: "Redrive", done: "Redriven", says: "Workers get them again, with no failures counted." },
    { text: "Discard these keys…", path: "parked/discard", verb: "Discard", done: "Discarded", says: "Their changes are dropped. No worker gets them.", isDangerous: true },
  ],
  delayed: [{ text: "Deliver these keys now…", path: "delayed/promote", verb: "Deliver", done: "Made ready", says: "They become ready now, before their delays and backoffs end." }],
};

/** A bar of actions on the keys that `filterOf` selects. */
export function bulkBar({ queue, state, filterOf, isPermitted, signal, onDone }) {
  const place = h("div");
  const problem = problemLine();
  const olderThan = h("input", { type: "text", class: "short", placeholder: "1h", "aria-label": "Only keys whose change is older than", spellcheck: "false" });
  const group = h("input", { type: "text", class: "short", placeholder: "Group", "aria-label": "Only keys of the group", spellcheck: "false" });

  async function act({ path, verb, done, says, isDangerous }) {
    const url = queuePath(queue, path);
    const filter = Object.fromEntries(Object.entries({ ...filterOf(), older_than: olderThan.value.trim() || null, group: group.value || null }).filter(([, value]) => value !== null && value !== undefined));
    const selection = Object.keys(filter).length > 0 ? { filter } : { all: true };
    const { keys, resource_version: until, older_than_at: before } = await post(url, { body: { ...selection, dry_run: true }, signal });
    if (keys === 0) {
      setText(problem, "No key matches.");
      return;
    }
    const words = Object.entries(filter).map(([name, value]) => h("li", null, h("code", null, name), " ", value === "" ? muted("none") : seen(value)));
    const go = await confirm({
      title: `${verb} ${counted(keys, "key")} of ${queue}?`, action: `${verb} ${counted(keys, "key")}`, expected: isDangerous ? queue : null,
      text: [h("p", null, says), words.length > 0 ? h("ul", { class: "errors" }, words) : h("p", null, `These are all ${state} keys.`), h("p", { class: "muted" }, "Keys that change before the call reaches them are left out.")],
      act: () => true,
    });
    if (!go) return;
    const end = progressOf({ place, queue, state, total: keys, title: `${verb} ${counted(keys, "key")}`, signal });
    try {
      const send = isDangerous ? postOnce : post;
      const changed = (await send(url, { body: { filter: before ? { ...filter, older_than: undefined, older_than_at: before, until } : { ...filter, until } }, signal, patience: PATIENCE })).keys;
      const left = keys - changed;
      const text = `${done}: ${counted(changed, "key")}.${left > 0 ? ` ${counted(left, "key")} had changed in the meantime and ${left === 1 ? "was" : "were"} left out.` : ""}`;
      await end(changed, text);
      announce(text);
    } catch (error) {
      await end(0, null);
      throw error;
    } finally {
      onDone();
    }
  }

  const buttons = (ACTIONS[state] ?? []).map((action) => actionButton({ text: action.text, kind: action.isDangerous ? "danger" : null, isPermitted, problem, signal }, () => act(action)));
  return buttons.length === 0 ? null : [h("div", { class: "bar" }, buttons, h("label", { class: "check" }, "older than ", olderThan), group), problem, place];
}
