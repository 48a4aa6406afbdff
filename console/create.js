// What is made by hand: a queue, and a test object.

import { call, get, post, queuePath } from "./api.js";
import { confirm } from "./dialogs.js";
import { h } from "./dom.js";
import { toSettings } from "./routes.js";

const MODES = [["delta", "delta: all changes of a key since its last acknowledgement"], ["latest", "latest: the newest change of a key"], ["keys", "keys: the key alone"], ["events", "events: each change alone and in order"]];

/** Asks for the name and mode of a new queue, creates it, and goes to its settings. */
export async function newQueue() {
  const name = h("input", { type: "text", id: "new-name", autocomplete: "off", spellcheck: "false", autocapitalize: "off" });
  const mode = h("select", { id: "new-mode" }, MODES.map(([value, text]) => h("option", { value }, text)));
  const isDone = await confirm({
    title: "New queue", action: "Create the queue",
    text: [h("label", { for: "new-name" }, "Name"), name, h("label", { for: "new-mode" }, "What a pop delivers"), mode, h("p", { class: "muted" }, "The mode can't be changed later while the queue has keys. All other settings have their defaults; you can change them next.")],
    act: async () => {
      if (name.value.trim() === "") throw new Error("A queue needs a name.");
      try {
        await call("PUT", queuePath(name.value.trim()), { body: { mode: mode.value }, isNew: true });
      } catch (error) {
        if (error.code !== "precondition-failed") throw error;
        throw new Error("A queue of this name exists already.");
      }
      return true;
    },
  });
  if (isDone) location.hash = toSettings(name.value.trim());
}

/** An object whose key is made of these parts. */
function objectOf(parts) {
  // A name such as __proto__ is a member like any other.
  const object = Object.create(null);
  for (const part of parts) {
    const names = (typeof part === "string" ? part : part.pointer).split("/").slice(1).map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    let place = object;
    for (const name of names.slice(0, -1)) place = place[name] ??= Object.create(null);
    place[names.at(-1) ?? "key"] = "test-1";
  }
  return JSON.stringify(object, null, 2);
}

/** The dialog that sends a test object, as a switch of the queue's page. */
export function objectSender(queue) {
  const area = h("textarea", { rows: 8, spellcheck: "false", "aria-label": "Object" });
  return {
    ask: async () => {
      const { key } = await get(queuePath(queue, "settings"));
      area.value = objectOf(Array.isArray(key) ? key : [key]);
      return { title: `Send a test object to ${queue}?`, action: "Send", text: [h("p", null, "Workers get it like any other object. It is stored and acknowledged like one."), area] };
    },
    act: async () => {
      try {
        JSON.parse(area.value);
      } catch (error) {
        throw new Error(`This is not JSON: ${error.message}`);
      }
      await post(queuePath(queue, "add"), { body: area.value });
    },
    says: () => "The test object is queued",
  };
}
