// The clock of the server, for ages: the clock of the browser may be wrong.

/** The header Date has whole seconds, and a reply takes a while, so smaller differences say nothing. In milliseconds. */
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
