"use strict";

// Dragging: a step to another place, or a new step from the palette into the list.
(() => {
  const { byId, element } = simulator;

  // What is dragged: the index of a card, or the lines and comments of a new one.
  let dragged = null;

  // The place in the list at the height of the pointer.
  const placeAt = (y) => {
    const items = [...byId("cards").children].filter((item) => item.classList.contains("card"));
    const index = items.findIndex((item) => {
      const box = item.getBoundingClientRect();
      return y < box.top + box.height / 2;
    });
    return index === -1 ? items.length : index;
  };

  const unmark = () => byId("cards").querySelector(".gap")?.remove();

  const markPlace = (place) => {
    unmark();
    const items = byId("cards").querySelectorAll(".card");
    const gap = element("li", { class: "gap", "aria-hidden": "true" });
    if (place < items.length) items[place].before(gap);
    else byId("cards").append(gap);
  };

  const begin = (event, what) => {
    dragged = what;
    event.dataTransfer.effectAllowed = "copyMove";
    // Firefox drags only what has data.
    event.dataTransfer.setData("text/plain", "step");
  };

  const end = () => {
    dragged = null;
    unmark();
  };

  // Makes an element of the palette draggable.
  simulator.dragNew = (button, template) => {
    button.draggable = true;
    button.addEventListener("dragstart", (event) => begin(event, { template }));
    button.addEventListener("dragend", end);
  };

  simulator.dragCards = (app) => {
    const list = byId("cards");
    list.addEventListener("dragstart", (event) => {
      const index = app.cards.findIndex((card) => card.id === event.target.closest(".card")?.id);
      if (index !== -1) begin(event, { index });
    });
    list.addEventListener("dragover", (event) => {
      if (dragged === null) return;
      event.preventDefault();
      markPlace(placeAt(event.clientY));
    });
    list.addEventListener("drop", (event) => {
      if (dragged === null) return;
      event.preventDefault();
      const place = placeAt(event.clientY);
      const { index, template } = dragged;
      end();
      if (index === undefined) app.insert(template(app), place);
      // The card leaves its own place first.
      else app.move(index, place > index ? place - 1 : place);
    });
    list.addEventListener("dragleave", (event) => {
      if (!list.contains(event.relatedTarget)) unmark();
    });
    list.addEventListener("dragend", end);
  };
})();
