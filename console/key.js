// One key: why it is not delivered, and everything that the queue knows about it.

import { curl, get, may, post, postOnce, queuePath, whoami } from "./api.js";
import { confirm } from "./dialogs.js";
import { announce, are, count, counted, foreign, h, muted, problemLine, seen, setText, show, span, time } from "./dom.js";
import { poll } from "./live.js";
import { diffView, objectView } from "./object.js";
import { actionButton } from "./page.js";
import { toKeys, toQueue } from "./routes.js";
import { failure, loading, stale } from "./states.js";
import { copyButton, facts } from "./table.js";

const EVERY = 2000;
const HISTORY_PAGE = 50;
/** The events that are read after a change. Each may have an object of a megabyte. */
const HISTORY_NEWEST = 3;
/** Deltas that are shown at a time, from the oldest and from the newest on. */
const DELTAS_SHOWN = 50;
const OBJECTS = new Set(["object"]);

/** The quoted key at the start of a sentence of the server. */
const NAME = /^Key "(?:[^"\\]|\\.)*"(?:\.\.\.)?: /s;

/** The sentence without the key, which is the heading, and with its instants in local time. */
function sentence({ explanation, due_at, lease, leased_at }) {
  const text = explanation.replace(NAME, "");
  const parts = [];
  let rest = text.charAt(0).toUpperCase() + text.slice(1);
  // A quoted error comes behind the instants, and may have instants of its own.
  for (const instant of [due_at ?? lease?.expires_at, leased_at]) {
    const at = instant ? rest.indexOf(instant) : -1;
    if (at < 0) continue;
    parts.push(...seen(rest.slice(0, at)), time(instant));
    rest = rest.slice(at + instant.length);
  }
  return [...parts, ...seen(rest)];
}

function adviceOf({ explain, status, settings: { mode } }) {
  switch (explain.reason) {
    case "parked": return mode === "events" ? "Fix the cause, then redrive the key; or discard the change that fails." : "Fix the cause, then redrive the key. A new change of the key also makes it ready.";
    case "backing_off": case "delayed": case "debouncing": return "It becomes ready by itself. “Deliver now” makes it ready at once.";
    case "leased": return "If the worker is gone, the key returns when its lease ends, or at once if you release it.";
    case "paused": return "Workers get it when the queue is resumed.";
    case "held": return "Workers get it after the hold.";
    case "queue_limit": return "Workers get it when they settle another.";
    case "group_paused": return "Workers get it when its group is resumed.";
    case "group_held": return "Workers get it after the hold of its group.";
    case "key_held": return "Workers get it after its hold.";
    case "group_limit": return "Workers get it when they settle another of its group.";
    case "rate_limited": return "The rate of the queue delivers it.";
    case "group_rate_limited": return "The rate of its group delivers it.";
    case "closed": return "Its delay does not end while the queue is closed.";
    case "queued": case "next": return status.leased === 0 && status.waiters === 0 ? "No worker of this queue is waiting or working. Start one." : `${counted(status.waiters, "pop")} of workers ${are(status.waiters, "waits", "wait")}, ${counted(status.leased, "key")} ${are(status.leased)} being worked on.`;
    case "nothing_waits": return "The workers have acknowledged its newest change.";
    default: return "Check the spelling of the key, or whether its producer has sent it.";
  }
}

/** What a discard asks: in mode events it drops one change of the key, otherwise all. */
async function discardOf(queue, key, { mode }, signal) {
  const { items } = await get(queuePath(queue, "items"), { query: { key }, signal });
  const changes = items[0]?.deltas.length ?? 0;
  const left = Math.max(0, changes - 1);
  const text = mode === "events" ? `The oldest change of this key, which fails, is dropped. No worker gets it. ${counted(left, "newer change")} ${left === 1 ? "stays" : "stay"}.`
    : changes === 0 ? "What waits of this key is dropped. No worker gets it."
    : `The ${counted(changes, "waiting change")} of this key ${are(changes)} dropped. No worker gets ${changes === 1 ? "it" : "them"}.`;
  return { title: mode === "events" ? `Discard a change of this key of ${queue}?` : `Discard the changes of this key of ${queue}?`, action: mode === "events" ? "Discard 1 change" : "Discard 1 key", expected: queue, text: [h("p", null, text)] };
}

/** The buttons that fit the reason. */
function remedies({ queue, key, found, who, refresh, problem, signal }) {
  const { explain } = found;
  const button = (text, verb, act, { kind = null, ask = null } = {}) => actionButton({ text, kind, verb, isPermitted: may(who, verb, queue), problem, signal }, async () => {
    const run = async () => { await act(); return true; };
    if (!(ask ? await confirm({ ...await ask(), act: run }) : await run())) return;
    announce(`${text}: done`);
    refresh();
  });
  switch (explain.reason) {
    case "parked": return [
      button("Redrive", "admin", () => post(queuePath(queue, "parked/redrive"), { body: { keys: [key] } }), { kind: "primary" }),
      button("Discard…", "admin", () => postOnce(queuePath(queue, "parked/discard"), { body: { keys: [key] } }), { kind: "danger", ask: () => discardOf(queue, key, found.settings, signal) }),
    ];
    case "backing_off": case "delayed": case "debouncing": return [button("Deliver now", "admin", () => post(queuePath(queue, "delayed/promote"), { body: { keys: [key] } }), { kind: "primary" })];
    case "paused": case "held": return [button("Resume the queue", "admin", () => post(queuePath(queue, "resume")), { kind: "primary" })];
    case "closed": return [button("Reopen the queue", "admin", () => post(queuePath(queue, "reopen")), { kind: "primary" })];
    case "leased": return [button("Release the lease…", "consume", () => post(queuePath(queue, "release"), { body: { lease_id: explain.lease.id } }), { ask: () => ({ title: `Take this key of ${queue} from its worker?`, action: "Release", text: [h("p", null, "Another worker may get the key at once. If the present worker is still at work, two work on the same key.")] }) })];
    default: return [];
  }
}

function deltaRow(delta, isNewest, opened) {
  const isOpen = isNewest || opened.has(String(delta.resource_version));
  const extra = [
    delta.source && ["from ", foreign(delta.source)],
    delta.coalesced && `${count(delta.coalesced)} older merged`,
    delta.final_state_unknown && "final state unknown",
    delta.traceparent && ["trace ", h("code", null, seen(delta.traceparent))],
  ].filter(Boolean);
  return h("li", null, h("details", { open: isOpen, "data-event": String(delta.resource_version) },
    h("summary", null, h("span", { class: "delta-type" }, delta.type), " ", time(delta.queued_at), muted(` event ${delta.resource_version}`, extra.map((one) => [" · ", one]))),
    delta.object ? lazy(isOpen, () => objectView(delta.object.text)) : h("p", { class: "muted" }, "without an object")));
}

/** A place that is filled when it is first opened. */
function lazy(isOpen, make) {
  const place = h("div");
  if (isOpen) show(place, make());
  else queueMicrotask(() => place.parentElement.addEventListener("toggle", () => place.childElementCount === 0 && show(place, make())));
  return place;
}

/** A list of deltas; of very many only both ends, until the reader asks for more. */
function deltaList(deltas, opened) {
  const list = h("ol", { class: "deltas" });
  const { length } = deltas;
  if (length <= 2 * DELTAS_SHOWN) return show(list, deltas.map((delta, index) => deltaRow(delta, index === length - 1, opened)));
  let from = DELTAS_SHOWN;
  const until = length - DELTAS_SHOWN;
  const more = h("button", { type: "button" });
  const gap = h("li", { class: "gap" }, more);
  const label = () => setText(more, `Show more of the ${counted(until - from, "delta")} in between`);
  more.addEventListener("click", () => {
    const next = Math.min(until, from + DELTAS_SHOWN);
    gap.before(...deltas.slice(from, next).map((delta) => deltaRow(delta, false, opened)));
    from = next;
    label();
    if (from === until) gap.remove();
  });
  label();
  return show(list, deltas.slice(0, DELTAS_SHOWN).map((delta) => deltaRow(delta, false, opened)), gap, deltas.slice(until).map((delta, index) => deltaRow(delta, index === DELTAS_SHOWN - 1, opened)));
}

/** What happened, in words. */
const EVENTS = { appended: "change", leased: "leased", extended: "lease extended", settled: "settled", delay_elapsed: "delay over", redriven: "redriven", purged: "dropped", forgotten: "failures forgotten", delayed: "delayed", seeded: "seeded" };

function eventRow(event) {
  const words = event.event === "settled" ? event.outcome ?? "settled" : event.event === "appended" ? event.type ?? "change" : EVENTS[event.event] ?? event.event.replaceAll("_", " ");
  const notes = [
    event.by && ["by ", foreign(event.by)],
    event.worker && ["worker ", foreign(event.worker)],
    event.source && ["from ", foreign(event.source)],
    event.parked === true && h("strong", { class: "alarm" }, "parked"),
    event.due_at && ["again ", time(event.due_at)],
    event.expires_at && ["until ", time(event.expires_at)],
    event.error && h("span", { class: "error-text" }, foreign(event.error)),
  ].filter(Boolean);
  const kind = event.parked === true || ["nacked", "expired", "rejected"].includes(event.outcome) ? "bad" : event.outcome === "acked" ? "good" : "";
  return h("li", { class: kind, "data-event": String(event.resource_version) }, h("span", { class: "when" }, time(event.at)), h("span", { class: "what" }, h("strong", null, words), notes.map((note) => [" · ", note]), muted(` · event ${event.resource_version}`),
    event.object && h("details", null, h("summary", null, "object"), lazy(false, () => objectView(event.object.text)))));
}

/** The timeline of a key, newest first; older events on demand. Events that are shown stay. */
function historyView(queue, key, signal) {
  const list = h("ol", { class: "timeline" });
  const note = h("p", { class: "muted" });
  const more = h("button", { type: "button", hidden: true }, "Older events");
  const read = async (next, limit = HISTORY_PAGE) => {
    more.disabled = true;
    try {
      const newest = next === null ? list.firstElementChild?.dataset.event : undefined;
      const page = await get(queuePath(queue, "history"), { query: { key, limit, continue: next }, raw: OBJECTS, signal });
      const known = page.items.findIndex((event) => String(event.resource_version) === newest);
      if (known >= 0) {
        list.prepend(...page.items.slice(0, known).map(eventRow));
      } else if (limit < HISTORY_PAGE && page.continue) {
        await read(null);
      } else {
        if (next === null) list.replaceChildren();
        list.append(...page.items.map(eventRow));
        more.hidden = !page.continue;
        more.onclick = () => read(page.continue);
      }
      setText(note, list.childElementCount === 0 ? "No event of the key is kept." : "");
    } catch (error) {
      if (!signal.aborted) setText(note, error.message);
    }
    more.disabled = false;
  };
  return { elements: [list, note, more], read: () => read(null, list.childElementCount > 0 ? HISTORY_NEWEST : HISTORY_PAGE) };
}

function leaseFacts(item) {
  const { lease, leased_at } = item;
  return [
    lease && ["Worker", lease.worker ? foreign(lease.worker) : muted("without a name")],
    leased_at && ["Leased since", time(leased_at)],
    lease && ["Lease ends", [time(lease.expires_at), muted(` in ${span(lease.expires_in_ms)}`)]],
    lease && ["Lease", h("code", null, lease.id)],
    lease && ["Token", String(lease.token)],
    ["Failures", count(item.failures)],
    item.last_error !== null && ["Last error", h("span", { class: "error-text" }, foreign(item.last_error))],
    ["Attempts", count(item.attempt)],
    item.due_at && ["Due", time(item.due_at)],
    item.source && ["Source", foreign(item.source)],
  ];
}

function commands(queue, key) {
  const list = [
    ["Why is it not delivered?", curl("GET", queuePath(queue, "explain"), { query: { key } })],
    ["The key", curl("GET", queuePath(queue, "items"), { query: { key } })],
    ["Its history", curl("GET", queuePath(queue, "history"), { query: { key } })],
    ["Redrive it", curl("POST", queuePath(queue, "parked/redrive"), { body: { keys: [key] } })],
  ];
  return h("details", { class: "commands" }, h("summary", null, "As curl"), h("dl", null, list.map(([title, text]) => h("div", null, h("dt", null, title), h("dd", null, h("code", { class: "block" }, seen(text)), copyButton(text))))));
}

/** All about a key. What is as `before` is not read again: an object may have a megabyte. */
async function readKey(queue, key, signal, before) {
  const { settings, status, incarnation } = await get(queuePath(queue), { signal });
  const one = async (list, query = {}) => (await get(queuePath(queue, list), { query: { key, ...query }, raw: OBJECTS, signal })).items[0] ?? null;
  const views = settings.mode === "keys" ? [] : settings.known_objects ? ["known", "latest"] : ["latest"];
  const [explain, ...versions] = await Promise.all([get(queuePath(queue, "explain"), { query: { key }, signal }), ...views.map((view) => one(view, { fields: "key,resource_version" }))]);
  const { reason, lease, failures, last_error, due_at } = explain;
  const numbers = versions.map((version) => String(version?.resource_version));
  const mark = JSON.stringify([incarnation, settings, reason, lease?.id, lease?.expires_at, failures, last_error, due_at, numbers]);
  if (mark === before?.mark) return { ...before, status, explain };
  const old = before?.incarnation === incarnation ? before : null;
  const objects = views.map((view, index) => (old?.[view] && String(old[view].resource_version) === numbers[index] ? old[view] : one(view)));
  const [item, ...found] = await Promise.all([one("items"), ...objects]);
  return { known: null, latest: null, ...Object.fromEntries(views.map((view, index) => [view, found[index]])), mark, incarnation, settings, status, explain, item };
}

// The states whose names differ from the reason.
const STATES = { debouncing: "delayed", backing_off: "delayed", key_held: "delayed", held: "ready", queue_limit: "ready", group_limit: "ready", group_paused: "ready", group_held: "ready", rate_limited: "ready", group_rate_limited: "ready", queued: "ready", next: "ready", nothing_waits: "acknowledged" };

function sections({ item, known, latest }, opened) {
  const leased = item?.leased_deltas ?? [];
  const waiting = item?.deltas ?? [];
  const newest = [...leased, ...waiting].at(-1);
  const isDeleted = newest?.type === "Deleted";
  const part = (title, ...content) => h("section", null, h("h2", null, title), content);
  const compared = known && latest && (leased.length > 0 || waiting.length > 0);
  return [
    item && part("State", facts(leaseFacts(item))),
    leased.length > 0 && part("Changes at the worker", h("p", { class: "muted" }, counted(leased.length, "delta")), deltaList(leased, opened)),
    waiting.length > 0 && part(leased.length > 0 ? "Changes behind the lease" : "Waiting changes", h("p", { class: "muted" }, counted(waiting.length, "delta"), waiting.length > 1 && ", oldest first"), deltaList(waiting, opened)),
    isDeleted && known && part("What changes", h("p", null, "The newest change deletes the object that the workers know.")),
    !isDeleted && compared && part("What changes", diffView(known.object.text, latest.object.text)),
    known && part("Known to the workers", h("p", { class: "muted" }, `acknowledged by event ${known.resource_version}`), objectView(known.object.text)),
    !known && !item && latest && part("Newest object", objectView(latest.object.text)),
  ];
}

export function keyView({ queue, key, head, body, signal, reload }) {
  show(body, loading("Reading the key"));
  const pill = h("span", { class: "pill" });
  head.append(pill);
  const line = h("p", { class: "sentence", "aria-live": "polite" });
  const advice = h("p", { class: "muted" });
  const actions = h("div", { class: "actions" });
  const note = h("div");
  const problem = problemLine();
  const strip = h("div");
  const rest = h("div", { class: "sections" });
  const history = historyView(queue, key, signal);
  let shown = null;

  function render(found, who) {
    const { explain } = found;
    if (shown === null) {
      show(body, strip, line, advice, actions, note, problem, commands(queue, key), rest, h("section", null, h("h2", null, "History"), history.elements), h("p", { class: "onward" }, h("a", { href: toKeys(queue, { find: key }) }, "Keys that begin like this"), " · ", h("a", { href: toQueue(queue) }, "The queue")));
    }
    show(strip);
    const text = sentence(explain);
    if (line.textContent !== text.map((node) => node.textContent ?? node).join("")) show(line, text);
    setText(advice, adviceOf(found));
    if (found.mark === shown?.mark) return;
    shown = found;
    const state = STATES[explain.reason] ?? explain.reason;
    setText(pill, state);
    pill.className = `pill ${state}`;
    const buttons = remedies({ queue, key, found, who, refresh: () => refresh(), problem, signal });
    show(actions, buttons);
    show(note, buttons.some((button) => button.disabled) && h("p", { class: "note" }, "Read only: the token ", foreign(who.name), " lacks the grant for this."));
    const opened = new Set([...rest.querySelectorAll("details[open]")].map((delta) => delta.dataset.event));
    show(rest, sections(found, opened));
    history.read();
  }

  const refresh = poll(async () => render(...await Promise.all([readKey(queue, key, signal, shown), whoami()])), {
    every: EVERY, signal,
    onFailure: (error, goesOn) => {
      if (goesOn && shown !== null) show(strip, stale(error));
      else show(body, failure(error, reload));
    },
  });
}

