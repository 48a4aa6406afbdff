"use strict";

// A scenario is a title and cards. A card is one command: its lines, the comments before it, and its line in the text.
(() => {
  const isComment = (line) => line.startsWith("#");
  let ids = 0;

  // A card with an id that no other card has.
  const card = (lines, comments = [], at = 0) => ({ id: `card-${(ids += 1)}`, lines, comments, at });

  // The title and the cards of a text: a rule script with or without what its commands print.
  const read = (text) => {
    const lines = text.split("\n");
    const cards = [];
    let title = "";
    let comments = [];
    for (let index = 0; index < lines.length; index += 1) {
      const line = lines[index].trimEnd();
      if (index === 0 && isComment(line)) title = line.replace(/^#+ */, "");
      else if (isComment(line)) comments.push(line.replace(/^#+ */, ""));
      else if (line === "----") while (index + 1 < lines.length && lines[index + 1].trim() !== "") index += 1;
      else if (/^\s/.test(line) && cards.length > 0 && comments.length === 0) cards.at(-1).lines.push(line);
      else if (line !== "") {
        cards.push(card([line.trim()], comments, index + 1));
        comments = [];
      }
    }
    return { title, cards };
  };

  // The text of a scenario, without what its commands print.
  const write = (title, cards) => {
    const texts = cards.map((card) => [...card.comments.map((line) => `# ${line}`), ...card.lines].join("\n"));
    return `# ${title}\n\n${texts.join("\n")}\n`;
  };

  // The lines of a card that the engine reads.
  const commands = (card) => {
    const [first, ...others] = card.lines.filter((line) => line.trim() !== "" && !isComment(line.trim()) && line.trim() !== "----");
    return first === undefined ? [] : [first.trim(), ...others.map((line) => `  ${line.trim()}`)];
  };

  // The script for the engine, and the lines at which its cards begin; `null` for a card without a command.
  const script = (cards) => {
    let source = "";
    let line = 1;
    const begins = cards.map((card) => {
      const lines = commands(card);
      if (lines.length === 0) return null;
      const begin = line;
      source += `${lines.join("\n")}\n----\n\n`;
      line += lines.length + 2;
      return begin;
    });
    return { source, begins };
  };

  Object.assign(simulator, { card, read, write, script });
})();
