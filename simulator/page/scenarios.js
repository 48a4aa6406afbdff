"use strict";

// The scenarios are the rule scripts. A few have a button, and a search finds the others.
(() => {
  const { byId, element } = simulator;
  const CHOSEN = [
    ["Arrivals", "changes-behind-a-lease-wait"],
    ["Leases", "an-older-lease-is-stale"],
    ["Crashes", "an-expired-lease-is-a-failure"],
    ["Lists", "a-replace-queues-its-list-and-then-deletions"],
    ["Debounce", "a-debounced-key-waits-until-it-is-quiet"],
    ["Groups", "groups-take-turns"],
    ["Failures", "failures-back-off-and-then-park"],
    ["Priorities", "a-priority-is-a-head-start-for-each-step"],
  ];

  const titles = new Map();
  for (const { name, source } of simulator.scripts) titles.set(name, source.slice(0, source.indexOf("\n")).replace(/^# */, ""));

  const search = (app) => {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = simulator.scripts.filter(({ name }) => words.every((word) => titles.get(name).toLowerCase().includes(word)));
    byId("rules").replaceChildren(...found.map(({ name }) => element("li", {}, element("button", { type: "button", onclick: () => app.load(name) }, titles.get(name)))));
    byId("found").textContent = found.length === 1 ? "1 rule" : `${found.length} rules`;
  };

  // Marks the scenario of this name.
  simulator.showScenario = (name) => {
    for (const button of byId("chosen").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.name === name));
  };

  simulator.firstScenario = CHOSEN[0][1];

  simulator.startScenarios = (app) => {
    const buttons = CHOSEN.map(([label, name]) => element("li", {}, element("button", { type: "button", "data-name": name, title: titles.get(name), "aria-pressed": "false", onclick: () => app.load(name) }, label)));
    byId("chosen").append(...buttons);
    byId("all").querySelector("summary").textContent = `All ${simulator.scripts.length} rules`;
    byId("search").addEventListener("input", () => search(app));
    search(app);
  };
})();
