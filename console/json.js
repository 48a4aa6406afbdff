// JSON without loss. `JSON.parse` rounds numbers beyond 2^53 and drops the zeros of 1.50; here an object of a producer is shown as it
// was written.

/** The text of a value that was not parsed. */
export class Raw {
  constructor(text) { this.text = text; }
}

const SPACE = /[ \t\r\n]*/y;
const PLAIN = /[^"\\]*/y;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;
const DEPTH_MAX = 200;
const WORDS = { true: true, false: false, null: null };

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

/** The end of the object or list that begins at `at`. It looks at brackets and strings only, because an object may have megabytes. */
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

/** The tokens of a JSON text from a place on, as [kind, begin, end]; a punctuation mark is its own kind. */
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

/** The value of a JSON text. Members with a name in `raw` stay text, as a `Raw`. */
export function parse(text, raw) {
  let source = tokens(text);
  let token = source.next().value;
  const take = () => {
    if (!token) throw new SyntaxError("a JSON text ends early");
    const taken = token;
    token = source.next().value;
    return taken;
  };
  const skip = () => {
    const [kind, begin, end] = token;
    if (kind !== "{" && kind !== "[") {
      take();
      return new Raw(text.slice(begin, end));
    }
    const after = valueEnd(text, begin);
    source = tokens(text, after);
    token = source.next().value;
    return new Raw(text.slice(begin, after));
  };
  const value = (depth) => {
    if (depth > DEPTH_MAX) throw new SyntaxError("a JSON text is nested too deeply");
    const [kind, begin, end] = take();
    const slice = () => text.slice(begin, end);
    switch (kind) {
      case "string": return JSON.parse(slice());
      case "number": return Number(slice());
      case "word": return WORDS[slice()];
      case "[": {
        const list = [];
        while (token?.[0] !== "]") {
          list.push(value(depth + 1));
          if (token?.[0] === ",") take();
        }
        take();
        return list;
      }
      case "{": {
        // Without a prototype, so that a member named __proto__ is a member like any other.
        const members = Object.create(null);
        while (token?.[0] !== "}") {
          const [nameKind, nameBegin, nameEnd] = take();
          if (nameKind !== "string") throw new SyntaxError("a member has no name");
          const name = JSON.parse(text.slice(nameBegin, nameEnd));
          take();
          members[name] = raw.has(name) ? skip() : value(depth + 1);
          if (token?.[0] === ",") take();
        }
        take();
        return members;
      }
      default: throw new SyntaxError(`a JSON text has ${kind} at ${begin}`);
    }
  };
  const result = value(0);
  if (token) throw new SyntaxError("a JSON text goes on behind its end");
  return result;
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
