"use strict";

// What the scripts of the page share. Each adds its part.
const simulator = {};

// The element of the page with this id.
simulator.byId = (id) => document.getElementById(id);

// A new element. Strings become text nodes, so no text of a script becomes markup.
simulator.element = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};
