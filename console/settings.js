// The settings of a queue, edited field by field. What a change means is asked from the server and shown before it is saved.

import { call, get, may, postOnce, queuePath, whoami } from "./api.js";
import { confirm } from "./dialogs.js";
import { announce, count, counted, h, muted, problemLine, seen, setText, show } from "./dom.js";
import { parse } from "./json.js";
import { pretty } from "./object.js";
import { readOnlyNote } from "./page.js";
import { failure, loading } from "./states.js";
import { listTable } from "./table.js";

const ROWS_MAX = 14;
/** A JSON text that fits on a line. */
const SHORT = 40;

const SETTINGS = new Set(["settings"]);

/** The settings in the document of a queue by name, each as its text. */
const settingsOf = ({ settings }) => texts(settings.text);
const readSettings = async (queue) => settingsOf(await get(queuePath(queue), { raw: SETTINGS }));

/** The members of an object, each as its text. */
function texts(text) {
  const members = parse(text, new Set(Object.keys(JSON.parse(text))));
  return new Map(Object.entries(members).map(([name, value]) => [name, value === null ? "null" : value.text]));
}

const objectText = (members) => `{${[...members].map(([name, text]) => `${JSON.stringify(name)}:${text}`).join(",")}}`;

/** The members that another object lacks, or has with another text. */
const differing = (members, other) => [...members].filter(([name, text]) => text !== other.get(name));

/** The merge patch that makes one JSON text of another: null removes a member. */
function patchOf(before, after) {
  if (!before.startsWith("{") || !after.startsWith("{")) return after;
  const [old, fresh] = [texts(before), texts(after)];
  const gone = [...old.keys()].filter((name) => !fresh.has(name)).map((name) => [name, "null"]);
  return objectText([...gone, ...differing(fresh, old).map(([name, text]) => [name, patchOf(old.get(name) ?? "null", text)])]);
}

/** What the schema of a setting says. */
function kindOf(schema, all) {
  const choices = schema.oneOf ?? schema.anyOf;
  if (choices) {
    const some = choices.find((choice) => choice.type !== "null");
    if (choices.length === 2 && some !== undefined && choices.some((choice) => choice.type === "null")) return { ...kindOf(some, all), isNullable: true };
    const words = choices.map((choice) => choice.const ?? choice.enum?.[0]);
    return { type: words.every((word) => typeof word === "string") ? "word" : "json", words, description: schema.description };
  }
  if (schema.$ref) return { ...kindOf(all[schema.$ref.split("/").at(-1)] ?? {}, all), ...(schema.description && { description: schema.description }) };
  const types = [schema.type].flat();
  const isNullable = types.includes("null");
  const type = types.find((one) => one !== "null");
  if (schema.enum) return { type: "word", words: schema.enum.filter((word) => word !== null), isNullable: schema.enum.includes(null), description: schema.description };
  const kind = { boolean: "flag", integer: "number", number: "number", string: "text" }[type] ?? "json";
  return { type: kind, isNullable, description: schema.description, minimum: schema.minimum, maximum: schema.maximum };
}

/** The range of a number, in words. */
function rangeOf({ minimum, maximum }) {
  if (minimum === undefined && maximum === undefined) return "";
  if (maximum === undefined) return ` At least ${count(minimum)}.`;
  return minimum === undefined ? ` At most ${count(maximum)}.` : ` From ${count(minimum)} to ${count(maximum)}.`;
}

/** A text with code between backquotes. */
const prose = (text) => text.split("`").map((part, index) => (index % 2 === 1 ? h("code", null, seen(part)) : seen(part)));

/** A control for a value. `shown` is its content for a text of JSON, and `read` the text of JSON for its content; null is the default. */
function control(kind, id, isDisabled, onInput) {
  const words = kind.type === "flag" ? ["true", "false"] : kind.type === "word" ? kind.words : null;
  const isText = kind.type === "word" || kind.type === "text";
  const common = { id, disabled: isDisabled, oninput: onInput, "aria-describedby": `${id}-hint` };
  const options = words && [...(kind.isNullable ? [["", "none"]] : []), ...words.map((word) => [word, word])];
  const element = words ? h("select", common, options.map(([value, text]) => h("option", { value }, text))) : h("textarea", { ...common, rows: 1, spellcheck: "false" });
  return {
    element,
    shown: (text) => (text === "null" ? "" : isText ? JSON.parse(text) : text.length < SHORT ? text : pretty(text)),
    read: () => (element.value.trim() === "" ? "null" : isText ? JSON.stringify(element.value.trim()) : element.value.trim()),
  };
}

const valueText = (text) => (text === undefined || text === "null" ? muted("none") : h("code", null, seen(pretty(text), false)));

/** The settings that differ, as a table. */
function diffTable(changes) {
  return listTable("Changes", [["Setting", ([name]) => h("code", null, name)], ["Now", ([, before]) => h("del", null, valueText(before))], ["After", ([, , after]) => h("ins", null, valueText(after))]], changes, "diff").element;
}

export async function settingsView({ queue, body, signal, reload }) {
  show(body, loading("Reading the settings"));
  let all;
  let settings;
  let isPermitted;
  let who;
  try {
    [{ components: { schemas: all } }, settings, who] = await Promise.all([get("openapi.json", { signal }), readSettings(queue), whoami()]);
    isPermitted = may(who, "admin", queue);
  } catch (error) {
    if (!signal.aborted) show(body, failure(error, reload));
    return;
  }
  if (signal.aborted) return;
  const properties = all.QueueSettings.properties;
  const problem = problemLine();
  const note = h("p", { class: "note", role: "status" });
  const review = h("button", { type: "submit", class: "primary", disabled: true }, "Review the changes…");
  const undo = h("button", { type: "button", disabled: true, onclick: () => { fields.forEach((field) => fill(field)); changed(); } }, "Undo");

  const fields = [...settings.keys()].map((name) => {
    const kind = kindOf(properties[name] ?? {}, all);
    const id = `setting-${name}`;
    const one = control(kind, id, !isPermitted, () => { resize(field); changed(); });
    const wrong = h("p", { class: "error" });
    const hint = h("p", { class: "muted", id: `${id}-hint` }, prose(`${(kind.description ?? "").replaceAll("\n", " ")}${rangeOf(kind)}`));
    const element = h("div", { class: "field" }, h("label", { for: id }, h("code", null, name)), h("div", null, one.element, wrong), hint);
    const field = { name, ...one, wrong, box: element };
    return field;
  });
  const isChanged = (field) => field.element.value !== field.shown(settings.get(field.name) ?? "null");
  const resize = ({ element }) => { element.rows = Math.min(ROWS_MAX, element.value.split("\n").length); };
  function fill(field) {
    field.element.value = field.shown(settings.get(field.name) ?? "null");
    setText(field.wrong, "");
    resize(field);
  }
  function changed() {
    const mine = fields.filter(isChanged);
    for (const field of fields) field.box.classList.toggle("changed", mine.includes(field));
    review.disabled = !isPermitted || mine.length === 0;
    undo.disabled = mine.length === 0;
    setText(review, mine.length === 0 ? "Review the changes…" : `Review ${counted(mine.length, "change")}…`);
  }

  /** The changes as texts of JSON; null if one of them is not JSON. */
  function changes() {
    const wanted = new Map();
    let isWrong = false;
    for (const field of fields.filter(isChanged)) {
      setText(field.wrong, "");
      const text = field.read();
      try {
        JSON.parse(text);
        wanted.set(field.name, text);
      } catch (error) {
        setText(field.wrong, `This is not JSON: ${error.message}`);
        isWrong = true;
        field.element.focus();
      }
    }
    return isWrong ? null : wanted;
  }

  /** Reads the settings again. The fields that the user has changed keep their content. */
  async function readAgain() {
    const mine = fields.filter(isChanged);
    settings = await readSettings(queue);
    for (const field of fields) if (!mine.includes(field)) fill(field);
    changed();
  }

  async function save() {
    const wanted = changes();
    if (wanted === null) return;
    setText(problem, "");
    setText(note, "");
    const planned = new Map([...settings, ...wanted]);
    const plan = await postOnce(queuePath(queue, "settings", "plan"), { body: objectText(planned), raw: new Set(["current", "planned"]), signal });
    const [before, after] = [plan.current, plan.planned].map((document) => texts(document?.text ?? "{}"));
    if (differing(settings, before).length > 0) {
      await readAgain();
      setText(note, "Somebody else has changed the settings. The fields show the present ones, and your changes. Review them again.");
      return;
    }
    const differences = differing(after, before).map(([name, text]) => [name, before.get(name), text]);
    if (differences.length === 0) {
      setText(note, "These values mean the same as the present ones. Nothing changes.");
      return;
    }
    // Of a schema null is a value, so it is sent as a whole.
    const patch = Array.from(wanted, ([name, text]) => [name, name === "schema" ? text : patchOf(before.get(name) ?? "null", text)]);
    const saved = await confirm({
      title: `Change ${counted(differences.length, "setting")} of ${queue}?`, action: "Save", isWide: true,
      text: [diffTable(differences)],
      act: async () => {
        try {
          return settingsOf(await call("PATCH", queuePath(queue), { body: objectText(patch), match: plan.etag, raw: SETTINGS }));
        } catch (error) {
          if (error.code !== "precondition-failed") throw error;
          await readAgain();
          throw new Error("Somebody else has changed the settings meanwhile, so nothing is saved. Cancel, and review your changes again.");
        }
      },
    });
    if (!saved) return;
    settings = saved;
    fields.forEach(fill);
    changed();
    const names = (members) => members.map(([name]) => name).join(", ");
    const others = differing(after, saved);
    setText(note, others.length === 0 ? `Saved: ${names(differences)}.` : `Saved, but not as reviewed: ${names(others)}. The fields show what the server has set.`);
    announce(note.textContent);
  }

  const form = h("form", {
    class: "settings-form",
    onsubmit: async (event) => {
      event.preventDefault();
      if (review.disabled) return;
      review.disabled = true;
      try {
        await save();
      } catch (error) {
        if (signal.aborted) return;
        show(problem, seen(error.message));
        const field = fields.find(({ name }) => name === error.document?.field);
        if (field) {
          setText(field.wrong, error.document.detail ?? error.message);
          field.element.focus();
        }
      }
      changed();
    },
  }, fields.map(({ box }) => box), h("div", { class: "sticky" }, problem, note, h("div", { class: "actions" }, review, undo)));
  show(body, readOnlyNote(who, queue, ["admin"]), h("p", { class: "muted" }, "An empty field has its default."), form);
  fields.forEach(fill);
  changed();
}
