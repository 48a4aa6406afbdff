"use strict";

// Steps that can be added. Each has a command that makes sense at the selected step.
(() => {
  const { byId, element } = simulator;
  // The lease of a queue with default settings.
  const LEASE = "30s";

  const places = (app) => app.shown?.places ?? { ready: [], delayed: [], leased: [], parked: [] };

  const keys = (app) => {
    const { ready, delayed, leased, parked } = places(app);
    return [...ready, ...delayed.map(([key]) => key), ...leased.map(([key]) => key), ...parked];
  };

  const newKey = (app) => {
    const taken = new Set(keys(app));
    return [..."abcdefghijklmnopqrstuvwxyz"].find((key) => !taken.has(key)) ?? "z";
  };

  const someKey = (app) => keys(app)[0] ?? "a";

  const newestLease = (app) => Math.max(1, ...places(app).leased.map(([, lease]) => lease));

  // How long a worker may be silent at the selected step.
  const lease = (app) => {
    const before = app.cards.slice(0, app.position).map((card) => card.lines.join(" "));
    const set = before.findLast((line) => /^(queue|set)\b.*\blease=/.test(line));
    return set?.match(/\blease=(\S+)/)[1] ?? LEASE;
  };

  const GROUPS = [
    ["Arrivals", [
      ["add", (app) => [`add ${newKey(app)} {"v":1}`]],
      ["update", (app) => [`update ${someKey(app)} {"v":2}`]],
      ["delete", (app) => [`delete ${someKey(app)}`]],
    ]],
    ["Workers", [
      ["pop", () => ["pop worker=w1"]],
      ["ack", (app) => [`ack ${newestLease(app)}`]],
      ["nack", (app) => [`nack ${newestLease(app)} error=timeout`]],
      ["release", (app) => [`release ${newestLease(app)}`]],
      ["extend", (app) => [`extend ${newestLease(app)} lease_duration=1m`]],
    ]],
    ["Crash", [["worker crashes", (app) => [`tick ${lease(app)}`], "The worker crashes: its lease runs out."]]],
    ["Time", [["tick", () => ["tick 1s"]]]],
    ["Lists", [
      ["replace", () => ["replace source=erp", '  a {"v":1}', '  b {"v":1}']],
      ["resync", () => ["resync"]],
    ]],
    ["Settings", [
      ["debounce", () => ["set debounce=2s..10s"]],
      ["groups", () => ["set groups=prefix:/"]],
      ["order", () => ["set order=/priority,step=10s"]],
      ["queue", () => ["queue mode=delta lease=10s"]],
    ]],
    ["Operate", [
      ["redrive", () => ["redrive"]],
      ["pause", () => ["pause"]],
      ["resume", () => ["resume"]],
      ["status", () => ["status"]],
    ]],
  ];

  const button = (app, [name, lines, comment]) => {
    const template = (app) => simulator.card(lines(app), comment === undefined ? [] : [comment]);
    const button = element("button", { type: "button", "aria-label": `Add step: ${name}`, onclick: () => app.insert(template(app), app.position) }, name);
    simulator.dragNew(button, template);
    return button;
  };

  simulator.showPalette = (app) => {
    const rows = GROUPS.map(([name, kinds]) => element("div", { class: "kinds" }, element("span", { class: "kind" }, name), ...kinds.map((kind) => button(app, kind))));
    byId("palette").append(...rows);
  };
})();
