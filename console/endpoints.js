// The endpoints that queues push to, and the hooks that feed queues: which one fails?

import { get } from "./api.js";
import { ago, count, counted, foreign, h, seen, setText, showAgain } from "./dom.js";
import { listPage } from "./page.js";
import { isBroken } from "./queues.js";
import { toQueue } from "./routes.js";
import { state } from "./states.js";
import { pill, section } from "./table.js";

const EVERY = 4000;
const PAGE = 5000;

async function readAll(signal) {
  const read = { items: [], unavailable: [] };
  let next = null;
  do {
    const page = await get("v1/queues", { query: { limit: PAGE, continue: next, fields: "name,status" }, signal });
    read.items.push(...page.items.filter(({ status }) => status.push || status.hook));
    read.unavailable.push(...(page.unavailable ?? []));
    next = page.continue;
  } while (next);
  return read;
}

const name = ({ name: queue }) => [toQueue(queue), foreign(queue)];
const agoOrNever = (instant) => (instant ? ago(instant) : "never");

const PUSHES = [
  ["Queue", name],
  ["State", ({ status }) => pill(status.paused ? "paused" : status.push.state, isBroken(status) || status.paused)],
  ["In flight", ({ status: { push } }) => `${count(push.in_flight)} of ${count(push.allowed_in_flight)}`, "number"],
  ["Ready", ({ status }) => count(status.ready), "number"],
  ["Parked", ({ status }) => count(status.parked), "number"],
  ["Last success", ({ status }) => agoOrNever(status.push.last_success_at)],
  ["Last error", ({ status: { push } }) => push.last_error && seen(push.last_error), "error"],
];

const HOOKS = [
  ["Queue", name],
  ["Kept", ({ status: { hook } }) => h("span", { class: hook.kept > 0 ? "alarm" : null }, count(hook.kept)), "number"],
  ["Last applied", ({ status }) => agoOrNever(status.hook.last_applied_at)],
  ["Last rejected", ({ status }) => agoOrNever(status.hook.last_rejected_at)],
  ["Why", ({ status: { hook } }) => hook.last_rejected && seen(hook.last_rejected), "error"],
];

export function endpointsView({ body, signal, reload }) {
  const sentence = h("p", { class: "sentence" });
  const tables = h("div");
  listPage({ body, signal, reload }, {
    every: EVERY, what: "the endpoints", content: [sentence, tables],
    read: () => readAll(signal),
    update: ({ items }) => {
      if (items.length === 0) return state("empty", "No queue has an endpoint", "With the setting push a queue sends its keys to an endpoint; with the setting hook it takes webhooks.");
      const pushes = items.filter(({ status }) => status.push);
      const hooks = items.filter(({ status }) => status.hook);
      const broken = pushes.filter(({ status }) => isBroken(status)).length;
      const kept = hooks.reduce((sum, { status }) => sum + status.hook.kept, 0);
      sentence.classList.toggle("alarm", broken + kept > 0);
      setText(sentence, [broken > 0 && `${counted(broken, "endpoint")} ${broken === 1 ? "fails" : "fail"}.`, kept > 0 && `${counted(kept, "delivery", "deliveries")} could not be applied.`].filter(Boolean).join(" ") || "Each endpoint answers, and each delivery was applied.");
      const order = (a, b) => isBroken(b.status) - isBroken(a.status) || (a.name < b.name ? -1 : 1);
      showAgain(tables, section("Pushes", PUSHES, pushes.sort(order)), section("Hooks", HOOKS, hooks.sort((a, b) => b.status.hook.kept - a.status.hook.kept)));
      return null;
    },
  });
}
