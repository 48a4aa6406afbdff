"use strict";

// The scenario that the page shows, and its changes. Each change runs the whole script again.
(() => {
  const { byId, element } = simulator;

  const app = {
    name: "",
    title: "",
    cards: [],
    // How many steps have run: 0 is the empty queue, and the selected card is the one before.
    position: 0,
    isOpen: false,
    // The step of each card; none for a card that did not run.
    steps: [],
    // The card that could not run, and why.
    failed: -1,
    error: "",
    // The step whose queue is shown.
    shown: null,
    runs: 0,
  };

  const original = () => simulator.read(simulator.scripts.find(({ name }) => name === app.name)?.source ?? "");

  // A text with code between backticks, as rules name members and settings.
  const marked = (text) => text.split("`").map((part, index) => (index % 2 === 1 ? element("code", {}, part) : part));

  const showState = () => {
    const first = original();
    const isChanged = simulator.write(first.title, first.cards) !== simulator.write(app.title, app.cards);
    byId("title").replaceChildren(...marked(app.title));
    byId("state").textContent = isChanged ? "Changed by you." : "Unchanged: the tests of deltaq run this script, too.";
    byId("reset").hidden = !isChanged;
  };

  // The last step that has run before a position.
  const stepBefore = (position) => app.steps.slice(0, position).findLast((step) => step !== undefined) ?? null;

  const showQueue = () => {
    const { position, cards, steps, failed } = app;
    const card = cards[position - 1];
    const isMissing = position > 0 && steps[position - 1] === undefined;
    const why = failed === position - 1 ? app.error : "This step did not run.";
    app.shown = stepBefore(position);
    const begins = card?.lines[0]?.startsWith("queue");
    const earlier = begins ? null : isMissing ? app.shown : stepBefore(position - 1);
    simulator.showBoard(app.shown, earlier, card?.lines.join("\n") ?? "before the first step", isMissing ? why : "");
    simulator.showPlayer(app);
    const line = failed === -1 ? null : simulator.lineInText(cards[failed]);
    byId("problem").textContent = failed === -1 ? "" : `${line === null ? `Step ${failed + 1}` : `Line ${line}`}: ${app.error}`;
  };

  const run = async () => {
    app.runs += 1;
    const number = app.runs;
    const { source, begins } = simulator.script(app.cards);
    const { steps, error } = await simulator.run(source);
    // A newer run is on its way.
    if (number !== app.runs) return;
    const rest = steps[Symbol.iterator]();
    app.steps = begins.map((begin) => (begin === null ? undefined : rest.next().value));
    app.failed = error === null ? -1 : begins.indexOf(error.line);
    app.error = error?.error ?? "";
    simulator.refreshCards(app);
    showQueue();
    document.body.dataset.ran = String(number);
  };

  // Shows a changed scenario, and runs it.
  const changed = (focus) => {
    simulator.showCards(app, focus);
    simulator.showText(app);
    showState();
    return run();
  };

  app.select = (position, hasFocus = false) => {
    app.position = Math.max(0, Math.min(position, app.cards.length));
    app.isOpen = false;
    simulator.showCards(app, hasFocus ? "step" : "");
    showQueue();
  };

  app.edit = (index) => {
    app.position = index + 1;
    app.isOpen = true;
    simulator.showCards(app, "field");
    showQueue();
  };

  app.close = () => {
    app.isOpen = false;
    simulator.showCards(app, "step");
    showState();
  };

  app.change = (index, lines) => {
    app.cards[index].lines = lines;
    showState();
    run();
  };

  app.move = (from, to, focus = "step") => {
    if (to < 0 || to >= app.cards.length) return;
    simulator.stopPlaying();
    app.cards.splice(to, 0, ...app.cards.splice(from, 1));
    app.position = to + 1;
    app.isOpen = false;
    changed(focus);
  };

  app.remove = (index) => {
    simulator.stopPlaying();
    app.cards.splice(index, 1);
    app.position = Math.min(index + 1, app.cards.length);
    app.isOpen = false;
    changed("step");
  };

  app.insert = (card, place) => {
    simulator.stopPlaying();
    app.cards.splice(place, 0, card);
    app.position = place + 1;
    app.isOpen = true;
    changed("field");
  };

  // Takes the title and the cards of a text.
  app.replace = ({ title, cards }, position) => {
    Object.assign(app, { title, cards, position, isOpen: false });
    changed("");
  };

  // Shows a rule script at its first delivery.
  app.load = (name) => {
    simulator.stopPlaying();
    app.name = name;
    const scenario = original();
    const pop = scenario.cards.findIndex((card) => card.lines[0].startsWith("pop"));
    simulator.showScenario(name);
    app.replace(scenario, pop === -1 ? scenario.cards.length : pop + 1);
  };

  byId("reset").addEventListener("click", () => {
    app.load(app.name);
    byId("title").focus();
  });
  document.documentElement.classList.toggle("framed", window !== window.top);
  // On a page of the documents the frame has the height of its content. From files, browsers keep the two apart, and the frame scrolls.
  if (window.frameElement) new ResizeObserver(() => (window.frameElement.style.height = `${document.body.offsetHeight}px`)).observe(document.body);
  simulator.showPalette(app);
  simulator.dragCards(app);
  simulator.startPlayer(app);
  simulator.startScenarios(app);
  simulator.startEditor(app);
  const wanted = new URLSearchParams(location.search).get("rule");
  app.load(simulator.scripts.some(({ name }) => name === wanted) ? wanted : simulator.firstScenario);
})();
