// Dialogs: confirmation, with a word to type where data is lost; token; keyboard shortcuts.

import { button, h, problemLine, seen, setText, show } from "./dom.js";
import { ofVisits } from "./storage.js";

/** Opens a dialog. Escape closes it, and focus returns to where it was. */
function open(title, content, onClose = () => {}) {
  const heading = h("h2", { id: "dialog-title" }, title);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, heading, content);
  dialog.addEventListener("close", () => {
    dialog.remove();
    onClose();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Closes all dialogs: they belong to a page that is left. */
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
}

/** Asks before `act`, whose failure is shown in the dialog. `expected` must be typed first. Resolves to the result of `act`, or to undefined. */
export function confirm({ title, text, action, expected = null, isWide = false, act }) {
  return new Promise((resolve) => {
    let result;
    const why = problemLine();
    const go = h("button", { type: "submit", class: expected ? "danger" : "primary", disabled: expected !== null }, action);
    const typed = expected && h("input", {
      type: "text", autocomplete: "off", spellcheck: "false", autocapitalize: "off", id: "typed",
      oninput: () => { go.disabled = typed.value !== expected; },
    });
    const form = h("form", {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        if (go.disabled) return;
        go.disabled = true;
        setText(why, "");
        try {
          result = await act();
          dialog.close();
        } catch (error) {
          show(why, seen(error.message));
          go.disabled = false;
        }
      },
    },
    h("div", { class: "prose" }, text),
    typed && h("label", { for: "typed" }, "Type ", h("strong", null, h("bdi", null, seen(expected))), " to confirm"), typed,
    why,
    h("p", { class: "actions" }, button("Cancel", () => dialog.close()), go));
    const dialog = open(title, form, () => resolve(result));
    dialog.classList.toggle("wide", isWide);
    (typed ?? go).focus();
  });
}

/** What a header of a request can have. */
const TOKEN = /^[ -~]+$/;
let asking = null;
/** Asks for a token. `given` gets it. */
export function askForToken(why, given, forget = null) {
  if (asking) return;
  const input = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false" });
  const wrong = problemLine();
  const form = h("form", {
    method: "dialog",
    onsubmit: (event) => {
      event.preventDefault();
      const text = input.value.trim();
      if (text === "") return;
      if (!TOKEN.test(text)) {
        setText(wrong, "A token can't contain these characters. Perhaps its quotes were replaced on the way.");
        return;
      }
      dialog.close();
      given(text);
    },
  },
  h("p", { class: "prose" }, seen(why)),
  h("label", { for: "token" }, "Token"), input, wrong,
  h("p", { class: "muted" }, "It is kept in this tab until you close the tab, and sent to this server only."),
  h("p", { class: "actions" },
    forget && button("Forget the token", () => { dialog.close(); forget(); }),
    h("button", { type: "submit", class: "primary" }, "Use the token")));
  const dialog = asking = open("Token", form, () => { asking = null; });
  input.focus();
}

const SHORTCUTS = [
  ["/", "find on this page"],
  ["f", "find everywhere"],
  ["j, k", "next row, previous row"],
  ["Enter", "open the row"],
  ["g q", "all queues"],
  ["g s", "sources"],
  ["g w", "workers"],
  ["g n", "nodes"],
  ["g a", "activity"],
  ["g o", "the queue"],
  ["g k", "its keys"],
  ["g p", "its parked keys"],
  ["g g", "its groups"],
  ["g e", "its settings"],
  ["g t", "its changes"],
  ["p", "pause what is live, or go on"],
  ["r", "read again"],
  ["?", "this list"],
];

const KEYS_OFF = "deltaq-keys-off";
/** Whether the shortcuts are in use: speech input can press them by mistake. */
export const usesKeys = () => ofVisits.get(KEYS_OFF) === null;

/** Shows the keyboard shortcuts. */
export function showHelp() {
  if (document.querySelector("dialog")) return;
  const list = h("dl", { class: "shortcuts" }, SHORTCUTS.map(([keys, text]) => h("div", null, h("dt", null, keys.split(", ").map((key, index) => [index > 0 && " ", h("kbd", null, key)])), h("dd", null, text))));
  const close = button("Close", () => dialog.close());
  const uses = h("input", { type: "checkbox", checked: usesKeys(), onchange: () => ofVisits.set(KEYS_OFF, uses.checked ? null : "yes") });
  const dialog = open("Keyboard", h("div", null, list, h("label", { class: "check" }, uses, "Use these keys"), h("p", { class: "actions" }, close)));
  close.focus();
}
