// What each setting of a queue means, in one sentence.

import { call, getTagged, queuePath } from "./api.js";
import { count, foreign, h, seen } from "./dom.js";
import { pretty } from "./object.js";

const MEANINGS = {
  mode: "What a pop delivers.",
  key: "The place of the key in an object.",
  version: "The place of the version. Older ones change nothing.",
  version_ties: "Equal versions: stale, or applied.",
  known_objects: "Whether acknowledged objects are stored.",
  emit_replaced: "Whether a whole list queues Replaced, or Sync.",
  lease: "The length of a lease.",
  max_failures: "Failures after which a key is parked. 0 is never.",
  rate_limiter: "The wait after a failure.",
  debounce: "Quiet times.",
  order: "Priority.",
  groups: "Keys that take turns.",
  max_leased: "The most leases.",
  rate: "Keys per second.",
  resync_period: "How often known objects come again.",
  max_keys: "Most keys of the queue.",
  max_object_bytes: "Largest object, in bytes.",
  max_deltas_per_key: "Most deltas that wait for a key.",
  max_bytes_per_key: "Most bytes that wait for a key.",
  max_delete_percent: "Share of a source's keys that a list may delete.",
  max_deletes: "Keys that a list may delete.",
  retention: "How long the history is kept.",
  follow: "The queue that feeds this one.",
  push: "Where keys are sent.",
  hook: "Webhooks that are taken.",
  cloudevents: "What of a CloudEvent is stored.",
  kubernetes: "The resource that Kubernetes clients see.",
  owner: "The file of deltaq apply that made the queue.",
  schema: "What an object must satisfy.",
  prune: "Members that are removed.",
  ignore: "Members whose change queues nothing.",
  indexes: "Indexes of known objects.",
  diff: "Arrays compared by element.",
};

const MODES = {
  delta: "All changes of a key since its last acknowledgement.",
  latest: "The newest change of a key.",
  keys: "The key alone. The worker reads the state elsewhere.",
  events: "The oldest change of a key, alone and in order.",
};

/** The dialog of settings. Their text is sent as is, so numbers keep their digits. */
export function settingsEditor(queue) {
  const area = h("textarea", { rows: 20, spellcheck: "false", "aria-label": "Settings" });
  let match;
  const read = async () => {
    const [text, tag] = await getTagged(queuePath(queue, "settings"));
    area.value = pretty(text);
    match = tag;
  };
  return {
    ask: async () => {
      await read();
      return { title: `Change the settings of ${queue}?`, action: "Change", text: [h("p", null, "A setting that you remove has its default."), area] };
    },
    act: async () => {
      try {
        await call("PUT", queuePath(queue), { body: area.value, match });
      } catch (error) {
        if (error.code !== "precondition-failed") throw error;
        await read();
        throw new Error("Somebody else has changed the settings. These are the present ones; make your change again.");
      }
    },
  };
}

/** The text of a value. A long one is folded. */
function valueOf(value) {
  if (typeof value === "string") return h("code", null, foreign(value));
  const text = value === null ? "none" : typeof value === "number" ? count(value) : value.text ?? JSON.stringify(value, (name, member) => member ?? undefined);
  if (text.length < 120) return h("code", null, foreign(text));
  return h("details", null, h("summary", null, `${text.length} characters`), h("pre", null, seen(pretty(text), false)));
}

/** The settings of a queue with their meanings. */
export function settingsTable(settings) {
  const rows = Object.entries(settings).map(([name, value]) => h("tr", null,
    h("th", { scope: "row" }, h("code", null, seen(name))),
    h("td", { "data-label": "Value" }, valueOf(value)),
    h("td", { class: "muted", "data-label": "Meaning" }, name === "mode" ? MODES[value] ?? MEANINGS.mode : MEANINGS[name] ?? "")));
  const head = h("thead", null, h("tr", null, ["Setting", "Value", "Meaning"].map((title) => h("th", { scope: "col" }, title))));
  return h("table", { class: "settings" }, h("caption", { class: "unseen" }, "Settings"), head, h("tbody", null, rows));
}
