// What the browser keeps of this tab and of all visits. What it refuses lasts until the page ends.

function storage(kept) {
  const values = new Map();
  return {
    get: (name) => {
      if (values.has(name)) return values.get(name);
      try {
        return kept().getItem(name);
      } catch {
        return null;
      }
    },
    /** Keeps a text; null removes it. */
    set: (name, text) => {
      try {
        if (text === null) kept().removeItem(name);
        else kept().setItem(name, text);
        values.delete(name);
      } catch {
        values.set(name, text);
      }
    },
  };
}

export const ofTab = storage(() => sessionStorage);
export const ofVisits = storage(() => localStorage);
