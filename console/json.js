// JSON as it was written. `JSON.parse` rounds numbers beyond 2^53 and drops the zeros of 1.50.

/** The text of a value that was not parsed. */
export class Raw {
  constructor(text) { this.text = text; }
}

const SPACE = /[ \t\r\n]*/y;
const PLAIN = /[^"\\]*/y;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

/** The end of what the pattern matches at `at`. */
function past(pattern, text, at) {
  pattern.lastIndex = at;
  pattern.test(text);
  return pattern.lastIndex;
}

/** The end of the string that begins at `at`. */
function stringEnd(text, at) {
  let end = at + 1;
  for (;;) {
    end = past(PLAIN, text, end);
    if (end >= text.length) throw new SyntaxError("a string has no end");
    if (text[end] === '"') return end + 1;
    end += 2;
  }
}

/** The end of the object or list that begins at `at`. Only brackets and strings are read: an object may have megabytes. */
function valueEnd(text, at) {
  let depth = 0;
  let isString = false;
  for (let end = at; end < text.length; end += 1) {
    const code = text.charCodeAt(end);
    if (isString) {
      if (code === 0x5c) end += 1;
      else if (code === 0x22) isString = false;
    } else if (code === 0x22) {
      isString = true;
    } else if (code === 0x7b || code === 0x5b) {
      depth += 1;
    } else if (code === 0x7d || code === 0x5d) {
      depth -= 1;
      if (depth === 0) return end + 1;
    }
  }
  throw new SyntaxError("a JSON text ends early");
}

/** The tokens of a JSON text from a place on, as [kind, begin, end]; punctuation is its own kind. */
export function* tokens(text, from = 0) {
  let at = past(SPACE, text, from);
  while (at < text.length) {
    const first = text[at];
    let kind = first;
    let end = at + 1;
    if (first === '"') {
      kind = "string";
      end = stringEnd(text, at);
    } else if (!"{}[],:".includes(first)) {
      end = past(NUMBER, text, at);
      kind = "number";
      if (end === 0) {
        end = past(WORD, text, at);
        kind = "word";
      }
      if (end === 0) throw new SyntaxError(`a JSON text has ${first} at ${at}`);
    }
    yield [kind, at, end];
    at = past(SPACE, text, end);
  }
}

/** The value of a JSON text. Members with a name in `raw` that are not null stay text, as a `Raw`. */
export function parse(text, raw) {
  // The browser's own parser reads the text around them, in which a number stands for each.
  const kept = [];
  let around = "";
  let end = 0;
  let name = "";
  let source = tokens(text);
  for (let token = source.next().value; token; token = source.next().value) {
    const [kind, begin, after] = token;
    if (kind === ":" && raw.has(JSON.parse(name))) {
      const from = past(SPACE, text, after);
      const to = "{[".includes(text[from]) ? valueEnd(text, from) : tokens(text, from).next().value[2];
      around += text.slice(end, from) + kept.length;
      kept.push(text.slice(from, to));
      end = to;
      source = tokens(text, to);
    }
    name = kind === "string" ? text.slice(begin, after) : "";
  }
  return JSON.parse(around + text.slice(end), (member, value) => {
    // The whole text has the name "", which may be one of `raw`.
    if (!raw.has(member) || typeof value !== "number") return value;
    return kept[value] === "null" ? null : new Raw(kept[value]);
  });
}

/** The values inside a JSON text by their JSON pointers, as written; the first `limit` of them. */
export function leaves(text, limit) {
  const found = new Map();
  // Of each open object or list its pointer, and the member or place in it that comes.
  const pointers = [];
  const path = [];
  const pointer = () => (path.length === 0 ? "" : `${pointers.at(-1)}/${path.at(-1)}`);
  const put = (leaf) => found.set(pointer(), leaf);
  let isName = false;
  let previous = null;
  for (const [kind, begin, end] of tokens(text)) {
    if (found.size === limit) break;
    if (kind === "{" || kind === "[") {
      pointers.push(pointer());
      path.push(kind === "[" ? 0 : "");
      isName = kind === "{";
    } else if (kind === "}" || kind === "]") {
      pointers.pop();
      path.pop();
      if (previous === "{" || previous === "[") put(previous + kind);
      isName = false;
    } else if (kind === ",") {
      isName = typeof path.at(-1) === "string";
      if (!isName) path[path.length - 1] += 1;
    } else if (isName) {
      const name = JSON.parse(text.slice(begin, end));
      path[path.length - 1] = name.replaceAll("~", "~0").replaceAll("/", "~1");
      isName = false;
    } else if (kind !== ":") {
      put(text.slice(begin, end));
    }
    previous = kind;
  }
  return found;
}
