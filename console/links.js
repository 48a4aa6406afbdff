// Links to the dashboard of a queue, the documents, and the entries of the runbook that fit what is wrong.

import { serverInfo } from "./api.js";
import { h, showAgain } from "./dom.js";
import { isBroken, isHeld } from "./queues.js";

const ENTRIES = [
  ["DeltaqKeysParked", "keys are parked", (status) => status.parked > 0],
  ["DeltaqNoWorker", "no worker takes the keys", (status) => status.ready > 0 && status.leased === 0 && status.waiters === 0 && !status.paused],
  ["DeltaqFollowerLagging", "the follower can't go on", isHeld],
  ["DeltaqPushFailing", "the endpoint fails", isBroken],
  ["DeltaqHookRejects", "deliveries were not applied", ({ hook }) => hook?.kept > 0],
];

/** A line of links that follows the status of a queue. Without the settings of the server it is empty. */
export function linksOf(queue) {
  const line = h("p", { class: "links" });
  let links = { grafana: null, docs: null };
  serverInfo().then((info) => { links = info.links ?? links; }, () => {});
  const update = (status) => {
    const { grafana, docs } = links;
    const wanted = [
      grafana && ["Dashboard", grafana.replaceAll("{queue}", encodeURIComponent(queue))],
      ...(docs ? ENTRIES.filter(([, , isWrong]) => isWrong(status)).map(([entry, text]) => [`Runbook: ${text}`, `${docs}/runbook.md#${entry.toLowerCase()}`]) : []),
      docs && ["Documents", `${docs}/console.md`],
      docs && ["Simulator", `${docs}/simulator.md`],
    ].filter(Boolean);
    showAgain(line, wanted.map(([name, target]) => h("a", { href: target, rel: "noreferrer" }, name)));
  };
  return { element: line, update };
}
