// A text among all queues, their keys, sources and workers.

import { get } from "./api.js";
import { now } from "./clock.js";
import { announce, count, counted, foreign, h, muted, show, time } from "./dom.js";
import { toKey, toQueue } from "./routes.js";
import { failure, loading, state } from "./states.js";
import { section } from "./table.js";
import { QUEUE, SOURCE, WORKER } from "./workers.js";

const KEYS = [
  ["Key", ({ queue, key }) => [toKey(queue, key), foreign(key, "key")]],
  QUEUE,
  ["State", ({ state: word }) => (word === null ? muted("acknowledged") : h("span", { class: `pill ${word}` }, word))],
];
const QUEUES = [["Queue", (queue) => [toQueue(queue), foreign(queue)]]];
const SOURCES = [SOURCE, QUEUE, ["Keys", ({ keys }) => count(keys), "number"]];
const WORKERS = [WORKER, QUEUE, ["Leases", ({ leased }) => count(leased), "number"]];

export async function findView({ body, query, signal, reload }) {
  const text = query.q ?? "";
  document.getElementById("find").value = text;
  if (text === "") {
    show(body, state("empty", "What do you look for?", "The field in the header takes the start of a key, or a part of the name of a queue, source or worker. Press f to get there."));
    return;
  }
  show(body, loading("Searching all queues"));
  let found;
  try {
    found = await get("v1/find", { query: { text }, signal });
  } catch (error) {
    if (!signal.aborted) show(body, failure(error, reload));
    return;
  }
  const { queues, keys, sources, workers } = found;
  const total = queues.length + keys.length + sources.length + workers.length;
  const unavailable = found.unavailable > 0 && h("p", { class: "strip" }, `${counted(found.unavailable, "queue")} can't be read and ${found.unavailable === 1 ? "was" : "were"} not searched.`);
  const line = h("p", { class: "found", role: "status" }, `${counted(total, "match", "matches")}${found.has_more ? ", and there are more" : ""}, as of `, time(new Date(now()).toISOString()));
  announce(line.textContent);
  if (total === 0) {
    show(body, unavailable, state("empty", "Nothing is found", ["No key begins with ", foreign(text, "key"), ", and no queue, source or worker has it in its name. Sources and workers are searched while a queue knows them."]));
    return;
  }
  show(body, unavailable, line,
    section("Keys", KEYS, keys), section("Queues", QUEUES, queues), section("Sources", SOURCES, sources), section("Workers", WORKERS, workers));
}
