// Repeated reads. A read begins when the one before it has ended, so a slow server gets no more than one at a time; failures
// are repeated later and later; a page that nobody sees reads nothing.

import { Problem } from "./api.js";

const BACKOFF_MAX = 15_000;
const listeners = new Set();
let isLive = true;
/** What the header shows: "live", "paused" or "waiting". */
let state = "live";

export const live = () => isLive;

export function setLive(wanted) {
  isLive = wanted;
  report(wanted ? "live" : "paused");
  for (const wake of listeners) wake();
}

let show = () => {};
/** The function that shows the state. */
export function onState(shown) { show = shown; }

export function report(now) {
  if (now === state) return;
  state = now;
  show(state);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const wake of listeners) wake();
});

/** Waits until time has passed, or until `wake` is called. */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      listeners.delete(wake);
      resolve();
    };
    const wake = () => {
      if (isLive && !document.hidden) end();
    };
    const timer = setTimeout(() => {
      if (isLive && !document.hidden) end();
    }, ms);
    listeners.add(wake);
    signal.addEventListener("abort", end, { once: true });
  });
}

/** The wait after a failure. */
export function backoff(failures, problem) {
  const wait = Math.min(BACKOFF_MAX, 500 * 2 ** Math.min(failures, 6));
  return Math.max(problem?.retryAfter ?? 0, wait * (0.75 + Math.random() / 2));
}

/** Whether a failure may pass by itself. */
export const isPassing = (error) => error instanceof Problem && (error.status === 0 || error.status === 429 || error.status >= 500);

/**
 * Reads until `signal` ends it. `read` shows what it has read. `onFailure` gets each failure; one that will not pass ends
 * the reads. Returns a function that reads at once.
 */
export function poll(read, { every, signal, onFailure }) {
  let wakeNow = () => {};
  (async () => {
    let failures = 0;
    while (!signal.aborted) {
      let wait = typeof every === "function" ? every() : every;
      try {
        await read();
        failures = 0;
        report(isLive ? "live" : "paused");
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        onFailure(error, failures);
        if (!isPassing(error)) return;
        report("waiting");
        wait = backoff(failures, error);
      }
      const early = new AbortController();
      const stop = () => early.abort();
      signal.addEventListener("abort", stop, { once: true });
      wakeNow = stop;
      await pause(wait, early.signal);
      signal.removeEventListener("abort", stop);
    }
  })();
  return () => wakeNow();
}
