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

export const toQueues = (query) => href(["queues"], query);
export const toQueue = (queue) => href(["queues", queue]);
export const toKeys = (queue, query) => href(["queues", queue, "keys"], query);
export const toKey = (queue, key, query) => href(["queues", queue, "keys", key], query);
export const toParked = (queue, query) => href(["queues", queue, "parked"], query);
export const toGroups = (queue, query) => href(["queues", queue, "groups"], query);
export const toTail = (queue, query) => href(["queues", queue, "tail"], query);

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
  if (first !== "queues" || parts.length > 4) return null;
  if (queue === undefined) return { view: "queues", query };
  if (view === "keys" && key !== undefined) return { view: "key", queue, key, query };
  if (key !== undefined || !["overview", "keys", "parked", "groups", "tail"].includes(view)) return null;
  return { view, queue, query };
}
