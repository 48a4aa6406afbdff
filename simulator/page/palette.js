"use strict";

// Steps that can be added. Each has a command that makes sense at the selected step.
(() => {
  const { byId, element } = simulator;
  // The lease of a queue with default settings, for a crash without a lease.
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

  // The time until the newest lease runs out.
  const silence = (app) => {
    const [key] = places(app).leased.at(-1) ?? [];
    return app.shown?.items[key]?.[0].match(/expires in (\w+)/)?.[1] ?? LEASE;
  };

  const KINDS = [
    ["Arrivals", [
      ["add", (app) => [`add ${newKey(app)} {"v":1}`]],
      ["update", (app) => [`update ${someKey(app)} {"v":2}`]],
      ["delete", (app) => [`delete ${someKey(app)}`]],
      ["add with delay", (app) => [`add ${newKey(app)} {"v":1} delay=5s`]],
    ]],
    ["Leases", [
      ["pop", () => ["pop worker=w1"]],
      ["ack", (app) => [`ack ${newestLease(app)}`]],
      ["nack", (app) => [`nack ${newestLease(app)} error=timeout`]],
      ["release", (app) => [`release ${newestLease(app)}`]],
      ["extend", (app) => [`extend ${newestLease(app)} lease_duration=1m`]],
    ]],
    ["Time", [
      ["worker crashes", (app) => [`tick ${silence(app)}`], "The worker crashes: its lease runs out."],
      ["tick", () => ["tick 1s"]],
    ]],
    ["Lists", [
      ["replace", () => ["replace source=erp", '  a {"v":1}', '  b {"v":1}']],
      ["resync", () => ["resync"]],
    ]],
    ["Debounce", [["set debounce", () => ["set debounce=2s..10s"]]]],
    ["Groups", [
      ["set groups", () => ["set groups=/tenant"]],
      ["add of a group", (app) => [`add ${newKey(app)} {"tenant":"acme"}`]],
      ["limit of each group", () => ["set groups=/tenant,max_leased=1"]],
    ]],
    ["Queue", [
      ["new queue", () => ["queue mode=latest lease=10s"]],
      ["order", () => ["set order=/priority,step=10s"]],
      ["pause", () => ["pause"]],
      ["resume", () => ["resume"]],
      ["redrive", () => ["redrive"]],
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
    const rows = KINDS.map(([name, kinds]) => element("div", { class: "kinds", role: "group", "aria-label": name }, element("span", { class: "kind", "aria-hidden": "true" }, name), element("span", { class: "buttons" }, ...kinds.map((kind) => button(app, kind)))));
    byId("kinds").append(...rows);
  };
})();
