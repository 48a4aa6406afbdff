// The endpoints that queues push to, and the hooks that feed queues: which one fails?

import { get } from "./api.js";
import { ago, count, counted, foreign, h, seen, setText, show } from "./dom.js";
import { listPage } from "./page.js";
import { isBroken } from "./queues.js";
import { toQueue } from "./routes.js";
import { state } from "./states.js";
import { cell, nothing, number, pill, rowHead, section } from "./table.js";

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

const nameOf = ({ name }) => rowHead(toQueue(name), foreign(name));

function pushRow(queue) {
  const { status } = queue;
  const { push } = status;
  return h("tr", null, nameOf(queue),
    cell("State", pill(status.paused ? "paused" : push.state, isBroken(status) || status.paused)),
    number({ "data-label": "In flight" }, `${count(push.in_flight)} of ${count(push.allowed_in_flight)}`),
    number({ "data-label": "Ready" }, count(status.ready)),
    number({ "data-label": "Parked" }, count(status.parked)),
    cell("Last success", push.last_success_at ? ago(push.last_success_at) : "never"),
    h("td", { class: "error-text", "data-label": "Last error" }, push.last_error ? seen(push.last_error) : nothing()));
}

function hookRow(queue) {
  const { hook } = queue.status;
  return h("tr", null, nameOf(queue),
    number({ "data-label": "Kept" }, h("span", { class: hook.kept > 0 ? "alarm" : null }, count(hook.kept))),
    cell("Last applied", hook.last_applied_at ? ago(hook.last_applied_at) : "never"),
    cell("Last rejected", hook.last_rejected_at ? ago(hook.last_rejected_at) : "never"),
    h("td", { class: "error-text", "data-label": "Why" }, hook.last_rejected ? seen(hook.last_rejected) : nothing()));
}

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
      show(tables,
        section("Pushes", [["Queue"], ["State"], ["In flight", true], ["Ready", true], ["Parked", true], ["Last success"], ["Last error"]], pushes.sort(order).map(pushRow)),
        section("Hooks", [["Queue"], ["Kept", true], ["Last applied"], ["Last rejected"], ["Why"]], hooks.sort((a, b) => b.status.hook.kept - a.status.hook.kept || (a.name < b.name ? -1 : 1)).map(hookRow)));
      return null;
    },
  });
}
