"use strict";

// The way through the steps: a slider, steps back and forth, and play.
(() => {
  const { byId } = simulator;
  const STEP_MS = 900;
  let timer = null;

  const stop = () => {
    clearInterval(timer);
    timer = null;
    byId("play").textContent = "Play";
  };

  const play = (app) => {
    if (app.position >= app.cards.length) app.select(0);
    byId("play").textContent = "Stop";
    timer = setInterval(() => {
      app.select(app.position + 1);
      if (app.position >= app.cards.length) stop();
    }, STEP_MS);
  };

  simulator.stopPlaying = stop;

  simulator.showPlayer = (app) => {
    const { position, cards } = app;
    byId("position").max = String(cards.length);
    byId("position").value = String(position);
    byId("where").textContent = `${position} of ${cards.length}`;
    byId("position").setAttribute("aria-valuetext", position === 0 ? "before the first step" : `step ${position} of ${cards.length}`);
    byId("previous").disabled = position === 0;
    byId("next").disabled = position === cards.length;
  };

  simulator.startPlayer = (app) => {
    const by = (change) => () => {
      stop();
      app.select(app.position + change);
    };
    byId("previous").addEventListener("click", by(-1));
    byId("next").addEventListener("click", by(1));
    byId("position").addEventListener("input", () => {
      stop();
      app.select(Number(byId("position").value));
    });
    byId("play").addEventListener("click", () => (timer === null ? play(app) : stop()));
  };
})();
