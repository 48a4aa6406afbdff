// The life of a key as a drawing, with the number of keys in each state, wide and narrow. The style sheet shows
// one.

import { compact, count, s, setText } from "./dom.js";
import { toKeys, toParked } from "./routes.js";

const WIDE = {
  view: [20, 26, 812, 246],
  box: [156, 76],
  nodes: { ready: [150, 34], leased: [412, 34], known: [674, 34], delayed: [150, 162], parked: [674, 162] },
  edges: [
    ["in", "M20 60 H142", [24, 50, "changes"]],
    ["take", "M306 72 H404", [330, 62, "pop"]],
    ["ack", "M568 72 H666", [592, 62, "ack"]],
    ["fail", "M430 110 V184 H314", [330, 176, "failure: waits"]],
    ["due", "M228 162 V118", [238, 144, "due"]],
    ["park", "M550 110 V200 H666", [558, 192, "parks"]],
    ["redrive", "M752 238 V266 H110 V88 H142", [330, 258, "a redrive"]],
  ],
};

const NARROW = {
  view: [8, 0, 318, 392],
  box: [140, 72],
  nodes: { ready: [8, 44], leased: [8, 180], known: [8, 316], delayed: [180, 112], parked: [180, 248] },
  edges: [
    ["in", "M78 6 V38", [86, 24, "changes"]],
    ["take", "M78 116 V174", [86, 150, "pop"]],
    ["ack", "M78 252 V310", [86, 286, "ack"]],
    ["fail", "M148 200 H230 V190", [154, 216, "failure"]],
    ["due", "M230 112 V92 H154", [186, 86, "due"]],
    ["park", "M148 236 H230 V242", [154, 252, ""]],
    ["redrive", "M320 284 H324 V64 H154", [186, 58, "redrive"]],
  ],
};

/** The states of keys that are counted. */
export const TITLES = { ready: "Ready", delayed: "Delayed", leased: "Leased", parked: "Parked", known: "Known" };

/** What the keys of a state wait for. */
const MEANINGS = {
  ready: "wait for a worker",
  delayed: "wait for a delay or a backoff",
  leased: "are being worked on",
  parked: "are set aside after failures",
  known: "objects are acknowledged",
};

function draw(queue, mode, layout, className) {
  const [boxWidth, boxHeight] = layout.box;
  const arrow = `arrow-${className}`;
  const edges = layout.edges.map(([name, path, [x, y, text]]) => s("g", { class: `edge ${name}` }, s("path", { d: path, "marker-end": `url(#${arrow})` }), s("text", { x, y }, name === "redrive" && mode !== "events" && className === "wide" ? "a new change or a redrive" : text)));
  const counts = {};
  const nodes = Object.entries(layout.nodes).map(([state, [x, y]]) => {
    const number = s("text", { x: 16, y: 54, class: "count" }, "–");
    const target = state === "parked" ? toParked(queue) : toKeys(queue, { state });
    const link = s("a", { href: target, class: `node ${state}`, transform: `translate(${x} ${y})` },
      s("rect", { width: boxWidth, height: boxHeight, rx: 10 }), s("text", { x: 16, y: 24, class: "name" }, TITLES[state]), number);
    counts[state] = { number, link };
    return link;
  });
  const marker = s("marker", { id: arrow, viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, s("path", { d: "M0 0 8 4 0 8Z" }));
  const drawing = s("svg", { class: `flow ${className}`, viewBox: layout.view.join(" "), role: "group", "aria-label": "The life of a key" }, s("defs", null, marker), edges, nodes);
  return { drawing, counts, edges };
}

/** The drawing of a queue; `update` shows a status. */
export function flow(queue, mode) {
  const drawings = [draw(queue, mode, WIDE, "wide"), draw(queue, mode, NARROW, "narrow")];
  const update = (status) => {
    const active = { take: !status.paused && status.leased > 0, ack: status.leased > 0, due: status.delayed > 0 };
    for (const { counts, edges } of drawings) {
      for (const [state, { number, link }] of Object.entries(counts)) {
        const text = compact(status[state]);
        if (number.textContent !== text && number.textContent !== "–") {
          number.classList.remove("moved");
          void number.getBBox();
          number.classList.add("moved");
        }
        setText(number, text);
        link.setAttribute("aria-label", `${TITLES[state]}: ${count(status[state])} ${MEANINGS[state]}`);
        link.classList.toggle("none", status[state] === 0);
      }
      for (const edge of edges) edge.classList.toggle("active", active[edge.classList[1]] === true);
    }
  };
  return { elements: drawings.map(({ drawing }) => drawing), update };
}
