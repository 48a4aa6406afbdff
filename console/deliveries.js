// The deliveries of a hook that a queue keeps because it could not apply them.

import { get, may, post, postOnce, queuePath } from "./api.js";
import { confirm } from "./dialogs.js";
import { ago, announce, count, counted, foreign, h } from "./dom.js";
import { actionButton } from "./page.js";
import { copyButton, listTable } from "./table.js";

const SHOWN = 100;

export const deliveriesOf = async (queue, status, options) => (status.hook ? (await get(queuePath(queue, "hook", "deliveries"), options)).deliveries : []);

/** A section with the kept deliveries, and the buttons that a caller with admin has. */
export function deliveriesSection({ queue, who, deliveries, refresh, problem, signal }) {
  if (deliveries.length === 0) return [];
  const isPermitted = may(who, "admin", queue);
  const button = (text, kind, act) => actionButton({ text, kind, isPermitted, problem, signal }, async () => {
    const said = await act();
    if (said) announce(said);
    refresh();
  });
  const all = { body: { all: true }, signal };
  const redeliver = button("Deliver again", null, async () => {
    const { applied, kept } = await post(queuePath(queue, "hook", "deliveries", "redeliver"), all);
    return `${count(applied)} applied, ${count(kept)} kept`;
  });
  const discard = button("Discard…", "danger", async () => {
    const isDone = await confirm({
      title: `Discard the kept deliveries of ${queue}?`, action: `Discard ${counted(deliveries.length, "delivery", "deliveries")}`,
      text: [h("p", null, "Their changes are lost, unless the sender has them.")],
      act: async () => { await postOnce(queuePath(queue, "hook", "deliveries", "discard"), all); return true; },
    });
    return isDone && "The deliveries are discarded";
  });
  const columns = [
    ["Received", (delivery) => [ago(delivery.received_at)]],
    ["Reason", (delivery) => delivery.reason],
    ["Detail", (delivery) => foreign(delivery.detail), "long"],
    ["Bytes", (delivery) => count(delivery.bytes), "number"],
    ["Show", (delivery) => copyButton(`deltaq hook show ${queue} ${delivery.number}`, "Copy command")],
  ];
  return [h("h2", null, "Kept deliveries"), h("p", null, `${counted(deliveries.length, "delivery", "deliveries")} of the hook could not be applied.`),
    h("div", { class: "actions" }, redeliver, discard),
    listTable("Kept deliveries", columns, deliveries.slice(0, SHOWN)).element];
}
