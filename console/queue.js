// One queue: the life of its keys, its producers, workers and followers, and its switches.

import { call, get, may, post, postOnce, queuePath, whoami } from "./api.js";
import { objectSender } from "./create.js";
import { deliveriesOf, deliveriesSection } from "./deliveries.js";
import { confirm } from "./dialogs.js";
import { ago, announce, are, count, counted, foreign, h, muted, problemLine, rate, seen, setText, show, showAgain, span, time } from "./dom.js";
import { flow } from "./flow.js";
import { linksOf } from "./links.js";
import { poll } from "./live.js";
import { actionButton, readOnlyNote } from "./page.js";
import { badges, isBroken, isHeld, rateOf } from "./queues.js";
import { toQueue, toQueues } from "./routes.js";
import { seriesSection } from "./series.js";
import { LAST_LIST, listText } from "./sources.js";
import { failure, loading, stale } from "./states.js";
import { facts, section } from "./table.js";
import { SOURCE, WORKER } from "./workers.js";

const EVERY = 1000;
const DETAILS_EVERY = 4000;
/** How long the first view waits for its tables and charts, in ms, so that they do not move it later. */
const TABLES_WAIT = 1000;
const FOLLOWERS_SHOWN = 50;
const ROWS_SHOWN = 100;

/** The switches of a queue, with what each needs and asks. */
function switchesOf(queue) {
  const act = (path, query) => () => post(queuePath(queue, path), { query });
  return {
    pause: { text: "Pause", verb: "admin", act: act("pause"), done: "Delivery is paused" },
    resume: { text: "Resume", verb: "admin", act: act("resume"), done: "Delivery is resumed", isMain: true },
    test: { text: "Test endpoint", verb: "admin", act: () => postOnce(queuePath(queue, "push", "test")), says: ({ answer, duration_ms }) => `The endpoint: ${answer} (${span(duration_ms)})` },
    resync: { text: "Resync", verb: "produce", act: act("resync"), done: "The known objects are queued", ask: (status) => ({ title: `Deliver all known objects of ${queue} again?`, text: [h("p", null, `A Sync is queued for each of the ${counted(status.known, "known object")} without waiting changes.`)], action: "Resync" }) },
    send: { text: "Send a test object…", verb: "produce", ...objectSender(queue) },
    close: { text: "Close", verb: "admin", act: act("close"), done: "The queue is closed", ask: () => ({ title: `Close the queue ${queue}?`, text: [h("p", null, "Pops drain the queue and then end, so its workers stop. Reopen undoes it.")], action: "Close" }) },
    reopen: { text: "Reopen", verb: "admin", act: act("reopen"), done: "The queue is open" },
    purge: {
      text: "Purge…", verb: "admin", act: () => postOnce(queuePath(queue, "purge")), done: "The waiting changes are dropped", isDangerous: true,
      ask: (status) => ({ title: `Drop the waiting changes of ${queue}?`, expected: queue, action: `Drop ${counted(status.ready + status.delayed, "key")}`,
        text: [h("p", null, h("strong", null, counted(status.ready + status.delayed, "key")), ` that ${status.ready + status.delayed === 1 ? "is" : "are"} ready or delayed, and the changes behind ${counted(status.leased, "lease")}, are dropped. No worker gets them.`), h("p", null, "Known objects and parked keys stay.")] }),
    },
    delete: {
      text: "Delete…", verb: "admin", done: "The queue is deleted", isDangerous: true,
      act: async () => { await call("DELETE", queuePath(queue)); location.hash = toQueues(); },
      ask: (status) => ({ title: `Delete the queue ${queue}?`, expected: queue, action: "Delete the queue",
        text: [h("p", null, h("strong", null, counted(status.ready + status.delayed + status.leased + status.parked, "key")), ` with changes, ${counted(status.known, "known object")} and the whole history are lost.`), status.waiters > 0 && h("p", null, `${counted(status.waiters, "pop")} of workers ${status.waiters === 1 ? "ends" : "end"}.`)] }),
    },
  };
}

function sentence(status) {
  if (status.drained) return "Drained: the queue is closed, and no key waits.";
  if (status.pause_reason) return status.pause_reason === "endpoint_gone" ? "Paused: the endpoint has answered 410, so it is gone. Resume tests it again." : "Paused: the endpoint has failed for too long. Resume tests it again.";
  if (status.paused) return "Paused: workers get nothing until the queue is resumed.";
  if (status.held_until) return status.push ? "Held: the endpoint asked to wait." : "Held: a worker asked to wait.";
  if (isBroken(status)) return `The endpoint ${status.push.state === "refused" ? "is not permitted" : "fails"}: ${status.push.last_error ?? "no answer yet"}.`;
  if (isHeld(status)) return `It follows another queue and can't go on: ${status.follow.detail ?? "it has reached a limit"}.`;
  if (status.ready > 0 && status.leased === 0 && status.waiters === 0) return "No worker takes the keys that are ready.";
  if (status.parked > 0) return `${counted(status.parked, "key")} ${are(status.parked)} parked. Redrive or discard ${status.parked === 1 ? "it" : "them"}.`;
  if (status.ready + status.delayed + status.leased === 0) return status.known > 0 ? "Everything is acknowledged." : "The queue is empty.";
  return `Workers are busy. The oldest change that is not acknowledged is ${span(status.oldest_unacknowledged_age_ms)} old.`;
}

const SOURCES = [
  SOURCE,
  ["Keys", ({ keys }) => count(keys), "number"],
  ["Last call", (source) => source.last_call_at && ago(source.last_call_at)],
  ["Sequence", (source) => source.sequence?.text, "number"],
  LAST_LIST,
];

const WORKERS = [
  WORKER,
  ["Leases", ({ leased }) => count(leased), "number"],
  ["Oldest", (worker) => worker.oldest_leased_at && ago(worker.oldest_leased_at)],
  ["Expires", ({ next_expires_in_ms: left }) => (left === null ? null : `in ${span(left)}`)],
  ["Waiting pops", ({ waiting }) => count(waiting), "number"],
];

const FOLLOWERS = [
  ["Queue", ({ name }) => [toQueue(name), foreign(name)]],
  ["State", ({ follow, why }) => (follow ? follow.state : seen(why))],
  ["Events behind", ({ follow }) => follow && count(follow.lag_events), "number"],
  ["Time behind", ({ follow }) => follow && span(follow.lag_ms), "number"],
];

/** The switches. Those that the caller may not use are off, and a sentence says why. */
function buttons({ queue, who, refresh, problem, signal }) {
  const switches = switchesOf(queue);
  const outcome = h("p", { class: "note" });
  const elements = Object.fromEntries(Object.entries(switches).map(([name, one]) => {
    const kind = one.isDangerous ? "danger" : one.isMain ? "primary" : null;
    const button = actionButton({ text: one.text, kind, verb: one.verb, isPermitted: may(who, one.verb, queue), problem, signal }, async () => {
      setText(outcome, "");
      let said = null;
      const run = async () => { said = await one.act(); return true; };
      // The numbers of the question are those of now, and not of the last read.
      const isDone = one.ask ? await confirm({ ...await one.ask(await get(queuePath(queue, "status"), { signal })), act: run }) : await run();
      if (!isDone) return;
      announce(one.says ? one.says(said) : one.done);
      if (one.says) show(outcome, seen(one.says(said)));
      refresh();
    });
    return [name, button];
  }));
  const note = readOnlyNote(who, queue, [...new Set(Object.values(switches).map((one) => one.verb))]);
  const bar = h("div", { class: "actions" }, Object.values(elements));
  return {
    bar, note: [note, outcome],
    update: (now) => {
      elements.test.hidden = !now.push;
      elements.pause.hidden = now.paused;
      elements.resume.hidden = !now.paused && !now.held_until;
      elements.close.hidden = now.closed;
      elements.reopen.hidden = !now.closed;
    },
  };
}

export function queueView({ queue, head: frameHead, body, query, signal, setQuery, reload }) {
  show(body, loading());
  const problem = problemLine();
  const strip = h("div");
  const line = h("p", { class: "sentence" });
  const words = h("span", { class: "badges" });
  const numbers = h("div");
  const details = h("div");
  const links = linksOf(queue);
  const series = seriesSection({ path: queuePath(queue, "series"), range: query.range, onRange: (range) => setQuery({ range }), signal });
  frameHead.append(words);

  let previous = null;
  let shown = null;
  let begin = null;
  const isShown = new Promise((resolve) => { begin = resolve; });
  function render(now, who) {
    const { life, status, settings } = now;
    const at = performance.now();
    const perSecond = rateOf(previous, now, at);
    previous = { life, changes: status.changes, at };
    if (!shown) {
      shown = { drawing: flow(queue, settings.mode), control: buttons({ queue, who, refresh: () => refresh(), problem, signal }) };
      show(body, strip, line, h("div", { class: "lifecycle" }, shown.drawing.elements), shown.control.bar, shown.control.note, problem, numbers, series.element, links.element, details);
      begin();
    }
    show(strip);
    setText(line, sentence(status));
    show(words, badges(status));
    shown.drawing.update(status);
    shown.control.update(status);
    links.update(status);
    showAgain(numbers, facts([
      ["Mode", settings.mode],
      ["Oldest change not acknowledged", status.oldest_unacknowledged_age_ms > 0 ? span(status.oldest_unacknowledged_age_ms) : "none"],
      ["Changes in per second", rate(perSecond)],
      ["Initial list", status.has_synced ? "synced" : status.initial_remaining === 0 ? "not begun" : `${counted(status.initial_remaining, "key")} to go`],
      ["Waiting pops", count(status.waiters)],
      ["Version", String(status.resource_version)],
      status.last_replace && !status.last_replace.source && ["Last list", listText(status.last_replace)],
      status.follow && ["Follows", [h("a", { href: toQueue(settings.follow.queue) }, foreign(settings.follow.queue)), `, ${status.follow.state}, ${counted(status.follow.lag_events, "event")} behind`]],
      status.push && ["Endpoint", [`${status.push.state}, ${count(status.push.in_flight)} of ${counted(status.push.allowed_in_flight, "request")} in flight`, status.push.last_success_at && [", took a key ", ago(status.push.last_success_at)]]],
      status.hook && ["Hook", [status.hook.last_applied_at ? ["applied ", ago(status.hook.last_applied_at)] : "nothing applied yet", `, ${count(status.hook.kept)} kept`, status.hook.last_rejected && h("p", { class: "muted" }, "Last rejected ", ago(status.hook.last_rejected_at), ": ", foreign(status.hook.last_rejected))]],
      ["Created", time(now.created_at)],
    ]));
  }

  /** Reads the tables of sources, workers and followers. Returns a function that shows them. */
  async function readTables() {
    const options = { signal, query: { limit: ROWS_SHOWN } };
    // A sequence number may have more digits than a number of JavaScript.
    const [sources, workers, status] = await Promise.all([get(queuePath(queue, "sources"), { ...options, raw: new Set(["sequence"]) }), get(queuePath(queue, "workers"), options), get(queuePath(queue, "status"), { signal })]);
    const names = status.followers.slice(0, FOLLOWERS_SHOWN);
    const followers = await Promise.all(names.map((name) => get(queuePath(name, "status"), { signal }).then(({ follow }) => ({ name, follow }), (error) => ({ name, why: error.message }))));
    const [who, deliveries] = await Promise.all([whoami(), deliveriesOf(queue, status, { signal })]);
    return () => showAgain(details,
      deliveriesSection({ queue, who, deliveries, refresh, problem, signal }),
      section("Sources", SOURCES, sources.items.map((source) => ({ ...source, queue })), "No source has named itself with source=."),
      section("Workers", WORKERS, workers.items.map((worker) => ({ ...worker, queue })), "No worker holds a lease or waits."),
      section("Followers", FOLLOWERS, followers, "No queue follows this one."));
  }
  let first = readTables();
  const tablesAreShown = Promise.race([Promise.all([first.then((showTables) => showTables(), () => {}), series.isShown]), new Promise((resolve) => { setTimeout(resolve, TABLES_WAIT); })]);

  async function read() {
    const [now, who] = await Promise.all([get(queuePath(queue), { signal }), whoami()]);
    await tablesAreShown;
    render(now, who);
  }
  const refresh = poll(read, {
    every: EVERY, signal,
    onFailure: (error, goesOn) => {
      if (goesOn && shown) show(strip, stale(error));
      else show(body, failure(error, reload));
      if (!goesOn) shown = null;
    },
  });

  poll(async () => {
    await isShown;
    const reading = first ?? readTables();
    first = null;
    (await reading)();
  }, { every: DETAILS_EVERY, signal, onFailure: () => {} });
}
