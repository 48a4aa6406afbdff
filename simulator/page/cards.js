"use strict";

// The steps as cards. One of them is selected, and may be open for a change.
(() => {
  const { byId, element } = simulator;

  // The first lines that a command has printed.
  const summary = (step) => (step === undefined ? "" : step.printed.join(" · "));

  const keys = (app, index) => (event) => {
    const act = (action) => {
      event.preventDefault();
      action();
    };
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (by !== undefined && event.altKey) act(() => app.move(index, index + by));
    else if (by !== undefined) act(() => app.select(Math.max(1, index + by + 1), true));
    else if (event.key === "Delete") act(() => app.remove(index));
  };

  const tool = (name, label, run, disabled = false) =>
    element("button", { type: "button", "data-tool": name, "aria-label": label, title: label, disabled, onclick: run }, { up: "↑", down: "↓", edit: "Change", remove: "Remove" }[name]);

  const tools = (app, index) => {
    const step = `step ${index + 1}`;
    return element(
      "div",
      { class: "tools" },
      tool("up", `Move ${step} up`, () => app.move(index, index - 1, "up"), index === 0),
      tool("down", `Move ${step} down`, () => app.move(index, index + 1, "down"), index === app.cards.length - 1),
      tool("edit", `Change ${step}`, () => app.edit(index)),
      tool("remove", `Remove ${step}`, () => app.remove(index)),
    );
  };

  const field = (app, card, index) => {
    const rows = () => String(Math.max(1, area.value.split("\n").length));
    const area = element("textarea", {
      class: "command",
      spellcheck: "false",
      autocapitalize: "off",
      "aria-label": `Command of step ${index + 1}`,
      oninput: () => {
        area.rows = Number(rows());
        app.change(index, area.value.split("\n"));
      },
      onkeydown: (event) => {
        const isEnd = event.key === "Escape" || (event.key === "Enter" && !event.shiftKey);
        if (!isEnd) return;
        event.preventDefault();
        app.close();
      },
    });
    area.value = card.lines.join("\n");
    area.rows = Number(rows());
    return area;
  };

  const view = (app, card, index) => {
    const isSelected = index === app.position - 1;
    const isOpen = isSelected && app.isOpen;
    const button = element(
      "button",
      {
        type: "button",
        class: "step",
        tabindex: isSelected || (app.position === 0 && index === 0) ? "0" : "-1",
        "aria-current": isSelected ? "step" : null,
        onclick: () => (isSelected ? app.edit(index) : app.select(index + 1, true)),
        onkeydown: keys(app, index),
      },
      element("span", { class: "number" }, String(index + 1)),
      element("code", {}, card.lines.join("\n")),
    );
    return element(
      "li",
      { class: isSelected ? "card selected" : "card", id: card.id, draggable: isOpen ? null : "true" },
      ...card.comments.map((line) => element("p", { class: "comment" }, line)),
      isOpen ? field(app, card, index) : button,
      element("p", { class: "printed" }),
      isSelected ? tools(app, index) : null,
    );
  };

  // Brings the selected card into view. Only the list scrolls, and not the page around it.
  const reveal = () => {
    const list = byId("cards");
    const item = list.querySelector(".selected");
    if (item === null) return;
    const box = list.getBoundingClientRect();
    const place = item.getBoundingClientRect();
    if (place.top < box.top) list.scrollTop -= box.top - place.top;
    else if (place.bottom > box.bottom) list.scrollTop += place.bottom - box.bottom;
  };

  // Writes what the commands have printed, which may change while a card is open.
  const refresh = (app) => {
    for (const [index, card] of app.cards.entries()) {
      const item = byId(card.id);
      if (item === null) continue;
      const failed = app.failed === index;
      item.classList.toggle("wrong", failed);
      item.querySelector(".printed").textContent = failed ? app.error : summary(app.steps[index]);
    }
    reveal();
  };

  // Shows all cards. `focus` is the part of the selected card that gets the focus.
  const show = (app, focus) => {
    const list = byId("cards");
    list.replaceChildren(...app.cards.map((card, index) => view(app, card, index)));
    refresh(app);
    const item = list.querySelector(".selected");
    if (!focus) return;
    // Without steps, the next thing to do is to add one.
    if (item === null) byId("kinds").querySelector("button").focus({ preventScroll: true });
    else {
      const tool = item.querySelector(`[data-tool="${focus}"]:not(:disabled)`);
      (tool ?? item.querySelector("textarea, .step")).focus({ preventScroll: true });
    }
  };

  Object.assign(simulator, { showCards: show, refreshCards: refresh });
})();
