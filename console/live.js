// Repeated reads. A read begins when the one before it ended, so a slow server gets one at a time; failures are
// repeated later and later; a page that nobody sees reads nothing.

import { Problem } from "./api.js";

const BACKOFF_MAX = 15_000;
const listeners = new Set();
/** Reads whose last try failed: "waiting" for the next try, or "stopped". */
const failed = new Map();
let isLive = true;
let state = "live";

export const live = () => isLive;

export function setLive(wanted) {
  isLive = wanted;
  showState();
  for (const wake of listeners) wake();
}

let show = () => {};
/** The function that shows the state: "live", "paused", "waiting" or "stopped". */
export function onState(shown) { show = shown; }

function showState() {
  const states = [...failed.values()];
  const now = isLive ? ["waiting", "stopped"].find((one) => states.includes(one)) ?? "live" : "paused";
  if (now !== state) show(now);
  state = now;
}

/** A function that takes the outcome of a read: "waiting", "stopped", or nothing if it succeeded. */
export function reporter(signal) {
  const me = {};
  const report = (what = null) => {
    if (what === null || signal.aborted) failed.delete(me);
    else failed.set(me, what);
    showState();
  };
  signal.addEventListener("abort", () => report(), { once: true });
  return report;
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

export function backoff(failures, problem) {
  const wait = Math.min(BACKOFF_MAX, 500 * 2 ** Math.min(failures, 6));
  return Math.max(problem?.retryAfter ?? 0, wait * (0.75 + Math.random() / 2));
}

/** Whether a failure may pass by itself. */
export const isPassing = (error) => error instanceof Problem && (error.status === 0 || error.status === 429 || error.status >= 500);

/** Calls `read` until `signal` ends it. `onFailure` gets each failure, and whether the reads go on. Returns a function that reads at once. */
export function poll(read, { every, signal, onFailure }) {
  let wakeNow = () => {};
  const report = reporter(signal);
  (async () => {
    let failures = 0;
    while (!signal.aborted) {
      let wait = typeof every === "function" ? every() : every;
      const early = new AbortController();
      const stop = () => early.abort();
      signal.addEventListener("abort", stop, { once: true });
      wakeNow = stop;
      try {
        await read();
        failures = 0;
        report();
      } catch (error) {
        if (signal.aborted) return;
        failures += 1;
        const goesOn = isPassing(error);
        report(goesOn ? "waiting" : "stopped");
        onFailure(error, goesOn);
        if (!goesOn) return;
        wait = backoff(failures, error);
      }
      if (!early.signal.aborted) await pause(wait, early.signal);
      signal.removeEventListener("abort", stop);
    }
  })();
  return () => wakeNow();
}
