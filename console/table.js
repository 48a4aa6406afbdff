// Tables whose rows keep their elements when content changes: focus, selection and scroll position stay.

import { h, muted, setText } from "./dom.js";

/** A cell of a number. */
export const number = (properties, ...children) => h("td", { ...properties, class: `number ${properties?.class ?? ""}`.trim() }, ...children);

/**
 * A table of `columns`, {title, label, isNumber, sort}; narrow pages show `label`. A sortable column calls `onSort` with its name.
 * `create(item)` returns the element of a row, and a function that shows another state of the item.
 */
export function table({ caption, columns, create, keyOf, onSort }) {
  const heads = columns.map((column) => {
    const cells = { scope: "col", class: column.isNumber ? "number" : column.isNarrow ? "narrow-column" : null };
    if (!column.sort) return h("th", cells, column.title);
    return h("th", cells, h("button", { type: "button", class: "sort", onclick: () => onSort(column.sort) }, column.title));
  });
  const body = h("tbody");
  const element = h("table", null, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, heads)), body);
  const rows = new Map();

  /** Shows these items in this order. */
  const update = (items) => {
    const wanted = new Set(items.map(keyOf));
    // Rows that go come first, so that the others keep their place and focus.
    for (const [key, row] of rows) {
      if (!wanted.has(key)) {
        row.element.remove();
        rows.delete(key);
      }
    }
    let next = body.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      let row = rows.get(key);
      if (!row) {
        row = create(item);
        [...row.element.children].forEach((cell, index) => {
          cell.dataset.label = columns[index].label ?? columns[index].title;
        });
        rows.set(key, row);
      } else {
        row.update(item);
      }
      if (row.element === next) next = next.nextElementSibling;
      else body.insertBefore(row.element, next);
    }
  };
  /** Marks the column by which the rows are sorted. */
  const mark = (name, isDescending) => {
    columns.forEach((column, index) => {
      if (!column.sort) return;
      if (column.sort === name) heads[index].setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      else heads[index].removeAttribute("aria-sort");
    });
  };
  return { element, update, mark };
}

const CLASSES = { number: "number", long: "long", error: "error-text" };

/** A table whose rows are made anew. `columns` are [title, value, kind]; the first value is [target, name], the link that opens the row. */
export function listTable(caption, columns, items, className = null) {
  const row = (item) => h("tr", null, columns.map(([title, value, kind], index) => {
    const content = value(item);
    if (index === 0) return h("th", { scope: "row" }, Array.isArray(content) && typeof content[0] === "string" && content[0].startsWith("#") ? h("a", { class: "row", href: content[0] }, content[1]) : content);
    return h("td", { class: CLASSES[kind], "data-label": title }, content || muted("–"));
  }));
  const head = columns.map(([title, , kind]) => h("th", { scope: "col", class: kind === "number" ? kind : null }, title));
  const rows = h("tbody", null, items.map(row));
  const element = h("div", { class: "scroll" }, h("table", { class: className }, h("caption", { class: "unseen" }, caption), h("thead", null, h("tr", null, head)), rows));
  return { element, add: (more) => rows.append(...more.map(row)) };
}

/** A heading with its table, or with a text if there are no rows; without a text, nothing. */
export function section(title, columns, items, empty = null) {
  if (items.length > 0) return [h("h2", null, title), listTable(title, columns, items).element];
  return empty === null ? [] : [h("h2", null, title), h("p", { class: "muted" }, empty)];
}

/** A word about a state, marked if it is wrong. */
export const pill = (word, isWrong, isWell = !isWrong) => h("span", { class: `pill ${isWrong ? "parked" : isWell ? "leased" : ""}` }, word);

/** A list of names and values. */
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

/** A cell that shows a text, and how to change it. */
export function textCell(tag = "td", properties = null) {
  const element = h(tag, properties);
  return { element, set: (text) => setText(element, text) };
}

/** Copies a text without the clipboard API, which browsers have with HTTPS only. */
function copySelected(text) {
  const field = h("textarea", { class: "unseen", value: text });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  return isCopied;
}

/** A button that copies a text. */
export function copyButton(text, label = "Copy") {
  const button = h("button", {
    type: "button", class: "quiet",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        setText(button, "Copied");
      } catch {
        setText(button, copySelected(text) ? "Copied" : "Not possible");
        button.focus();
      }
      setTimeout(() => setText(button, label), 2000);
    },
  }, label);
  return button;
}

/** A strip of links of which one is current. */
export function tabs(label, items) {
  return h("nav", { class: "tabs", "aria-label": label }, items.map(([text, target, isCurrent]) => h("a", { href: target, "aria-current": isCurrent ? "page" : null }, text)));
}

