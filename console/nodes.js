// The nodes: what each owns, runs and stores. A single server is one row.

import { get } from "./api.js";
import { bytes, count, counted, foreign, h, setText, show, span } from "./dom.js";
import { listPage } from "./page.js";
import { cell, facts, nothing, number, pill, plainTable } from "./table.js";

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

/** The partitions of a node, and the epoch of each. */
function partitionsOf(node, details) {
  if (!details) return counted(node.partitions, "partition");
  const { owned } = details;
  if (owned.length === 0) return "none";
  const epochs = owned.filter(({ epoch }) => epoch !== null);
  return [
    `${count(owned.length)}: ${ranges(owned.map(({ partition }) => partition))}`,
    epochs.length > 0 && h("details", null, h("summary", null, epochs.length === 1 ? `Epoch ${epochs[0].epoch}` : "Epochs"), h("p", { class: "muted" }, epochs.map(({ partition, epoch }) => `${partition}: ${epoch}`).join(", "))),
  ];
}

function row(node, isAlone) {
  const { details } = node;
  return h("tr", null,
    h("th", { scope: "row" }, isAlone ? "This server" : foreign(node.name), !isAlone && node.this && [" ", h("span", { class: "badge" }, "this one")], node.url && h("p", { class: "muted" }, foreign(node.url))),
    cell("State", pill(node.state, node.state !== "serving")),
    cell("Partitions", partitionsOf(node, details)),
    number({ "data-label": "Queues" }, count(node.queues)),
    cell("Version", details ? foreign(details.version) : nothing()),
    cell("Store", details ? STORES[details.store] ?? foreign(details.store) : nothing()),
    cell("Survives", details ? SURVIVES[details.durability] ?? foreign(details.durability) : nothing()),
    cell("Disk free", typeof details?.disk_free_bytes === "number" ? bytes(details.disk_free_bytes) : nothing()),
    number({ "data-label": "Runs for" }, details ? span(details.uptime_ms) : nothing()),
    number({ "data-label": "Heartbeat" }, isAlone ? nothing() : `${span(node.heartbeat_age_ms)} ago`),
    number({ "data-label": "Clock" }, isAlone ? nothing() : `${node.clock_ahead_ms > 0 ? "+" : ""}${count(node.clock_ahead_ms)} ms`));
}

const COLUMNS = [["Node"], ["State"], ["Partitions"], ["Queues", true], ["Version"], ["Store"], ["Survives"], ["Disk free"], ["Runs for", true], ["Heartbeat", true], ["Clock", true]];

/** What needs attention, in one sentence. */
function sentenceOf({ nodes, partitions, without_owner }) {
  const versions = new Set(nodes.map(({ details }) => details?.version).filter(Boolean));
  const ill = nodes.filter(({ state }) => state !== "serving");
  if (without_owner > 0) return [`${counted(without_owner, "partition")} of ${count(partitions)} ${without_owner === 1 ? "has" : "have"} no owner. Calls on ${without_owner === 1 ? "its" : "their"} queues are refused until a node takes ${without_owner === 1 ? "it" : "them"}.`, true];
  if (ill.length > 0) return [`${counted(ill.length, "node")} ${ill.length === 1 ? "is" : "are"} not serving.`, true];
  if (versions.size > 1) return [`The nodes run ${count(versions.size)} versions.`, true];
  return nodes.length === 1 && !nodes[0].name ? ["One server, without other nodes.", false] : [`${counted(nodes.length, "node")} own all ${counted(partitions, "partition")}.`, false];
}

export function nodesView({ body, signal, reload }) {
  const sentence = h("p", { class: "sentence" });
  const place = h("div");
  const limits = h("div");
  listPage({ body, signal, reload }, {
    every: EVERY, what: "the nodes", content: [sentence, place, limits],
    read: async () => {
      const [list, info] = await Promise.all([get("v1/nodes", { signal }), get("v1/info", { signal })]);
      return { ...list, info };
    },
    update: ({ nodes, this: own, info, ...list }) => {
      const isAlone = nodes.length === 0;
      const all = isAlone ? [{ name: "", url: "", this: true, state: "serving", queues: own.queues, details: own }] : nodes;
      const [text, isWrong] = sentenceOf({ ...list, nodes: all });
      setText(sentence, text);
      sentence.classList.toggle("alarm", isWrong);
      const open = [...place.querySelectorAll("details")].map((one) => one.open);
      show(place, plainTable("Nodes", COLUMNS, all.map((node) => row(node, isAlone))));
      place.querySelectorAll("details").forEach((one, index) => { one.open = open[index] === true; });
      show(limits, facts([
        ["Memory of this process", info.memory_bytes === null ? "unknown" : bytes(info.memory_bytes)],
        ["For queues at most", bytes(info.limits.held_bytes)],
        ["Most queues", count(info.limits.queues)],
        info.store.replicated !== null && ["Standby", info.store.replicated ? "has each change before it is acknowledged" : "may lack the last changes"],
      ]));
      return null;
    },
  });
}
