// The clock of the server, for ages: the clock of the browser may be wrong.

/** Smaller differences say nothing: the header Date has whole seconds. In milliseconds. */
const TOLERANCE = 2000;
let ahead = 0;

/** Compares the clocks; `date` is the header Date of a reply that has just arrived. */
export function observe(date) {
  const instant = Date.parse(date ?? "");
  if (Number.isNaN(instant)) return;
  const difference = instant + 500 - Date.now();
  ahead = Math.abs(difference) > TOLERANCE ? difference : 0;
}

/** The time of the server, in ms since 1970. */
export const now = () => Date.now() + ahead;
