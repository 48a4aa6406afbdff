// The nodes: what each owns, runs and stores. A single server is one row.

import { get } from "./api.js";
import { are, bytes, count, counted, foreign, h, setText, show, span } from "./dom.js";
import { listPage } from "./page.js";
import { listTable, pill } from "./table.js";

const EVERY = 4000;

/** What an acknowledged change survives, in words. */
const SURVIVES = {
  full: "power cuts", normal: "a crash of the process", memory: "nothing: the store is the memory",
};
const STORES = { sqlite: "SQLite", postgres: "PostgreSQL", memory: "memory" };

/** Numbers in ranges: 0–3, 7. */
function ranges(numbers) {
  const parts = [];
  for (const one of numbers) {
    const last = parts.at(-1);
    if (last && last[1] === one - 1) last[1] = one;
    else parts.push([one, one]);
  }
  return parts.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

/** The partitions of a node, and the epochs of their writers. */
function partitionsOf({ partitions, details }) {
  if (!details) return count(partitions);
  const numbers = details.owned.map(({ partition }) => partition);
  const epochs = [...new Set(details.owned.map(({ epoch }) => epoch).filter((epoch) => epoch !== null))].sort((a, b) => a - b);
  return [numbers.length === 0 ? "none" : `${count(numbers.length)}: ${ranges(numbers)}`, epochs.length > 0 && h("p", { class: "muted" }, `Epoch ${ranges(epochs)}`)];
}

/** A value of what a node says of itself. */
const ofDetails = (value) => ({ details }) => details && value(details);

const COLUMNS = [
  ["Node", (node) => (node.name === "" ? "This server" : [foreign(node.name), node.this && h("span", { class: "badge" }, "this one"), h("p", { class: "muted" }, foreign(node.url))])],
  ["State", ({ state }) => pill(state, state !== "serving")],
  ["Partitions", partitionsOf],
  ["Queues", ({ queues }) => count(queues), "number"],
  ["Version", ofDetails(({ version }) => foreign(version))],
  ["Store", ofDetails(({ store }) => STORES[store] ?? foreign(store))],
  ["Survives", ofDetails(({ durability }) => SURVIVES[durability] ?? foreign(durability))],
  ["Disk free", ofDetails((details) => (details.disk_free_bytes === null ? null : bytes(details.disk_free_bytes)))],
  ["Runs for", ofDetails((details) => span(details.uptime_ms)), "number"],
];
const OF_SEVERAL = [
  ["Heartbeat", (node) => `${span(node.heartbeat_age_ms)} ago`, "number"],
  ["Clock", (node) => `${node.clock_ahead_ms > 0 ? "+" : ""}${count(node.clock_ahead_ms)} ms`, "number"],
];

/** What needs attention, in one sentence. */
function sentenceOf({ nodes, partitions, without_owner }) {
  const versions = new Set(nodes.map(({ details }) => details?.version).filter(Boolean));
  const ill = nodes.filter(({ state }) => state !== "serving");
  if (without_owner > 0) return [`${counted(without_owner, "partition")} of ${count(partitions)} ${are(without_owner, "has", "have")} no owner. Calls on ${without_owner === 1 ? "its" : "their"} queues are refused until a node takes ${without_owner === 1 ? "it" : "them"}.`, true];
  if (ill.length > 0) return [`${counted(ill.length, "node")} ${are(ill.length)} not serving.`, true];
  if (versions.size > 1) return [`The nodes run ${count(versions.size)} versions.`, true];
  return nodes.length === 1 && !nodes[0].name ? ["One server, without other nodes.", false] : [`${counted(nodes.length, "node")} own all ${counted(partitions, "partition")}.`, false];
}

export function nodesView({ body, signal, reload }) {
  const sentence = h("p", { class: "sentence" });
  const place = h("div");
  listPage({ body, signal, reload }, {
    every: EVERY, what: "the nodes", content: [sentence, place],
    read: () => get("v1/nodes", { signal }),
    update: ({ nodes, this: own, ...list }) => {
      const isAlone = nodes.length === 0;
      const all = isAlone ? [{ name: "", url: "", this: true, state: "serving", queues: own.queues, details: own }] : nodes;
      const [text, isWrong] = sentenceOf({ ...list, nodes: all });
      setText(sentence, text);
      sentence.classList.toggle("alarm", isWrong);
      show(place, listTable("Nodes", isAlone ? COLUMNS : [...COLUMNS, ...OF_SEVERAL], all).element);
      return null;
    },
  });
}
