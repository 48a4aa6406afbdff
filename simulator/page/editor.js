"use strict";

// The scenario as text.
(() => {
  const { byId } = simulator;

  const isShown = () => !byId("editor").hidden;

  // Writes the text anew, after a change elsewhere.
  simulator.showText = (app) => {
    if (isShown() && document.activeElement !== byId("text")) byId("text").value = simulator.write(app.title, app.cards);
  };

  // The line of a card in the text, if the text is what a person sees.
  simulator.lineInText = (card) => (isShown() && card.at > 0 ? card.at : null);

  // The card in which a position of the text is.
  const cardAt = (app, position) => {
    const line = byId("text").value.slice(0, position).split("\n").length;
    return app.cards.findLastIndex((card) => card.at <= line);
  };

  simulator.startEditor = (app) => {
    const text = byId("text");
    const follow = () => {
      const index = cardAt(app, text.selectionStart);
      if (index + 1 !== app.position) app.select(index + 1);
    };
    byId("as-text").addEventListener("click", () => {
      const shows = byId("editor").hidden;
      byId("editor").hidden = !shows;
      byId("as-cards").hidden = shows;
      byId("palette").hidden = shows;
      byId("as-text").setAttribute("aria-pressed", String(shows));
      if (shows) {
        text.value = simulator.write(app.title, app.cards);
        app.replace(simulator.read(text.value), app.position);
      }
    });
    text.addEventListener("input", () => {
      const scenario = simulator.read(text.value);
      app.replace(scenario, Math.min(app.position, scenario.cards.length));
      follow();
    });
    text.addEventListener("click", follow);
    text.addEventListener("keyup", follow);
  };
})();
