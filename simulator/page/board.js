"use strict";

// The queue after a step: its keys by place, what the command printed, and what has changed since the step before.
(() => {
  const { byId, element } = simulator;
  const LANES = [
    ["ready", "Ready", "in the order of delivery; with groups, of arrival"],
    ["delayed", "Delayed", "with the time that is left"],
    ["leased", "Leased", "by a worker"],
    ["parked", "Parked", "after too many failures"],
  ];
  const GLIDE_MS = 250;
  const EMPTY = { places: { ready: [], delayed: [], leased: [], parked: [] }, items: {}, known: [], status: [], printed: [], now: 0 };

  // Milliseconds with the longest unit that divides them, as scripts write them.
  const duration = (millis) => {
    if (millis === 0) return "0s";
    const [unit, length] = [["h", 3600000], ["m", 60000], ["s", 1000], ["ms", 1]].find(([, length]) => millis % length === 0);
    return `${millis / length}${unit}`;
  };

  // The keys of a place with what is said about each.
  const entries = (step, place) => step.places[place].map((entry) => {
    if (place === "delayed") return { key: entry[0], note: `in ${duration(entry[1])}` };
    if (place === "leased") return { key: entry[0], note: `${entry[2] === null ? "" : `${entry[2]}, `}lease ${entry[1]}` };
    return { key: entry, note: "" };
  });

  // The place of each key.
  const placesOf = (step) => {
    const places = new Map();
    for (const [place] of LANES) for (const { key } of entries(step, place)) places.set(key, place);
    return places;
  };

  // What has happened to a key since the step before.
  const mark = (key, place, before, step, earlier) => {
    if (!before.has(key)) return "new";
    if (before.get(key) !== place) return `was ${before.get(key)}`;
    return JSON.stringify(step.items[key]) === JSON.stringify(earlier.items[key]) ? "" : "changed";
  };

  const chip = ({ key, note }, place, marked, lines) => {
    // The first line is the key with its place, and then what else is known about it.
    const about = (lines[0] ?? "").slice(key.length).split(", ").slice(1).filter((part) => !part.startsWith("due in"));
    return element(
      "li",
      { class: marked === "" ? "key" : "key moved", "data-key": key },
      element("p", {}, element("strong", {}, key), " ", element("span", { class: "note" }, note), marked === "" ? null : element("span", { class: "mark" }, marked)),
      about.length === 0 ? null : element("p", { class: "about" }, about.join(", ")),
      ...lines.slice(1).map((line) => element("code", {}, line)),
    );
  };

  const lane = ([place, name, about], step, earlier, before) => {
    const keys = entries(step, place);
    const chips = keys.map((entry) => chip(entry, place, mark(entry.key, place, before, step, earlier), step.items[entry.key] ?? []));
    return element(
      "section",
      { class: `lane ${place}`, "aria-label": `${name}: ${keys.length === 1 ? "1 key" : `${keys.length} keys`}` },
      element("h4", {}, name, " ", element("span", { class: "count" }, String(keys.length))),
      element("p", { class: "hint" }, about),
      element("ol", {}, ...chips),
    );
  };

  // Where each key is on the screen.
  const boxes = () => new Map([...byId("lanes").querySelectorAll(".key")].map((item) => [item.dataset.key, item.getBoundingClientRect()]));

  // Lets the keys move from where they were.
  const glide = (from) => {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const item of byId("lanes").querySelectorAll(".key")) {
      const was = from.get(item.dataset.key);
      const is = item.getBoundingClientRect();
      if (was === undefined) item.animate([{ opacity: 0 }, { opacity: 1 }], GLIDE_MS);
      else if (was.x !== is.x || was.y !== is.y) item.animate([{ translate: `${was.x - is.x}px ${was.y - is.y}px` }, { translate: "0" }], { duration: GLIDE_MS, easing: "ease-out" });
    }
  };

  const sentence = (line) => element("li", {}, element("code", {}, line));

  // Shows the queue. `command` is the text of the step, `missing` says why there is no step.
  const show = (step, earlier, command, missing) => {
    const now = step ?? EMPTY;
    const then = earlier ?? EMPTY;
    const before = placesOf(then);
    const after = placesOf(now);
    const from = boxes();
    byId("lanes").replaceChildren(...LANES.map((place) => lane(place, now, then, before)));
    glide(from);
    const left = [...before.keys()].filter((key) => !after.has(key));
    byId("left").textContent = left.length === 0 ? "" : `${left.join(", ")} left the queue.`;
    byId("command").textContent = command;
    byId("printed").textContent = missing || (step === null ? "The queue is empty." : [...now.printed, ...(now.defect ? [now.defect] : [])].join("\n"));
    byId("printed").classList.toggle("alarm", missing !== "");
    byId("clock").textContent = `${duration(now.now)} after the start`;
    byId("known-title").textContent = `Known objects: ${now.known.length}`;
    byId("objects").replaceChildren(...now.known.map(sentence));
    byId("status").textContent = now.status.slice(1).join(", ");
  };

  Object.assign(simulator, { duration, showBoard: show });
})();
