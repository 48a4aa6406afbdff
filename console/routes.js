// Places of the console. The fragment of the URL is a whole place, so a link can be shared.

/** The fragment of a place: parts of a path, and a query. */
export function href(parts, query = {}) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) search.set(name, value);
  }
  const text = search.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The pages that are about all queues, in the order of the header. */
export const PAGES = [["queues", "Queues"], ["sources", "Sources"], ["reflectors", "Reflectors"], ["workers", "Workers"], ["endpoints", "Endpoints"], ["nodes", "Nodes"], ["activity", "Activity"]];
/** The views of a queue besides its overview. */
const OF_QUEUE = ["overview", "keys", "parked", "groups", "settings", "tail"];

export const toPage = (page, query) => href([page], query);
export const toQueues = (query) => href(["queues"], query);
export const toFind = (text) => href(["find"], { q: text });
export const toQueue = (queue, query) => href(["queues", queue], query);
export const toKeys = (queue, query) => href(["queues", queue, "keys"], query);
export const toKey = (queue, key, query) => href(["queues", queue, "keys", key], query);
export const toParked = (queue, query) => href(["queues", queue, "parked"], query);
export const toGroups = (queue, query) => href(["queues", queue, "groups"], query);
export const toSettings = (queue, query) => href(["queues", queue, "settings"], query);
export const toTail = (queue, query) => href(["queues", queue, "tail"], query);

/** The fragment of a place with another query. */
export function toPlace({ view, queue, key }, query) {
  if (queue === undefined) return href([view], query);
  const rest = view === "overview" ? [] : view === "key" ? ["keys", key] : [view];
  return href(["queues", queue, ...rest], query);
}

/** The place of a fragment: a view with its parameters; null if there is no such view. */
export function placeOf(fragment) {
  const [path, search = ""] = fragment.replace(/^#\/?/, "").split(/\?(.*)/s);
  let parts;
  try {
    parts = path.split("/").filter((part) => part !== "").map(decodeURIComponent);
  } catch {
    return null;
  }
  const query = Object.fromEntries(new URLSearchParams(search));
  const [first = "queues", queue, view = "overview", key] = parts;
  if (parts.length > 4) return null;
  if (queue === undefined) return first === "find" || PAGES.some(([page]) => page === first) ? { view: first, query } : null;
  if (first !== "queues") return null;
  if (view === "keys" && key !== undefined) return { view: "key", queue, key, query };
  if (key !== undefined || !OF_QUEUE.includes(view)) return null;
  return { view, queue, query };
}
