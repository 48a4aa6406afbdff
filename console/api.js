// Calls of the API. The token is kept for this tab only, sent in a header, and never part of a URL.

import { observe } from "./clock.js";
import { parse } from "./json.js";
import { ofTab } from "./storage.js";

const STORED = "deltaq-token";
const BASE = new URL("../", document.baseURI.split("#")[0]);
/** How long a reply may take, in ms. */
const PATIENCE = 30_000;
/** How often a change is sent while no node owns its queue, and the least time between two tries, in ms. */
const TRIES = 5;
const AGAIN_AFTER = 500;

/** A refusal of the server, or of the network. */
export class Problem extends Error {
  constructor(document, retryAfter = null) {
    super([document.detail || document.title, document.hint].filter(Boolean).join("; "));
    this.document = document;
    this.code = document.code;
    this.status = document.status ?? 0;
    this.retryAfter = retryAfter;
  }
}

let token = ofTab.get(STORED);
let asksForToken = () => {};

/** The function that is called when a token is needed. */
export function onTokenNeeded(ask) { asksForToken = ask; }

export const hasToken = () => token !== null;

export function setToken(text) {
  token = text;
  ofTab.set(STORED, text);
}

/** The path of a queue, and of what is below it. */
export function queuePath(queue, ...rest) {
  return ["v1/queues", encodeURIComponent(queue), ...rest].join("/");
}

function urlOf(path, query) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined) url.searchParams.set(name, value);
  }
  return url;
}

/** What `reading` the network gives. A failure is a `Problem`, unless the caller has ended the call. */
async function fromNetwork(reading, signal) {
  try {
    return await reading;
  } catch (error) {
    if (signal?.aborted && signal.reason.name === "AbortError") throw signal.reason;
    const title = signal?.aborted ? "The server has not replied in time" : "The server can't be reached";
    throw new Problem({ code: "unreachable", title, detail: error.message });
  }
}

async function request(method, path, { query, body, accept, match, isNew, signal } = {}) {
  const headers = { accept: accept ?? "application/json" };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  const sent = typeof body === "string" ? body : body && JSON.stringify(body);
  if (match) headers["if-match"] = match;
  if (isNew) headers["if-none-match"] = "*";
  if (sent) headers["content-type"] = "application/json";
  const response = await fromNetwork(fetch(urlOf(path, query), { method, headers, body: sent, signal, cache: "no-store", credentials: "same-origin" }), signal);
  observe(response.headers.get("date"));
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const text = await response.text().catch(() => "");
  const seconds = Number(response.headers.get("retry-after"));
  let document = { code: "unknown", title: `The reply has the status ${response.status}` };
  try {
    const parsed = JSON.parse(text);
    if (typeof parsed.title === "string" && typeof parsed.code === "string") document = parsed;
  } catch {
    // A proxy has answered in its own words.
  }
  document.status = response.status;
  if (document.code === "unauthorized") {
    const why = document.detail ?? document.title;
    document.detail = token === null ? "This server needs a token. Its operator issues them." : `${why.charAt(0).toUpperCase()}${why.slice(1)}.`;
    document.hint = null;
    asksForToken(document.detail);
  }
  return new Problem(document, seconds > 0 ? seconds * 1000 : null);
}

/** A call with a JSON reply. `raw` names members that stay text. `match` is the ETag that the changed document must have; with `isNew` there must be none. */
export async function call(method, path, { raw, signal, patience = PATIENCE, ...options } = {}) {
  const limit = AbortSignal.timeout(patience);
  const either = signal ? AbortSignal.any([signal, limit]) : limit;
  const response = await request(method, path, { ...options, signal: either });
  if (response.status === 204) return null;
  const text = await fromNetwork(response.text(), either);
  try {
    return raw ? parse(text, raw) : JSON.parse(text);
  } catch (error) {
    // A proxy has replaced the reply, or a part of it.
    throw new Problem({ code: "unknown", title: "The reply is not from deltaq", detail: error.message });
  }
}

export const get = (path, options) => call("GET", path, options);
export const postOnce = (path, options) => call("POST", path, options);

/** Sends a change that may be applied twice. It is sent again while its queue moves to another node. */
export async function post(path, options) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await postOnce(path, options);
    } catch (error) {
      if (error.code !== "not-owner" || tries === TRIES) throw error;
      await new Promise((resolve) => { setTimeout(resolve, Math.max(AGAIN_AFTER, error.retryAfter ?? 0)); });
      options?.signal?.throwIfAborted();
    }
  }
}

/** Reads a stream of NDJSON until the server ends it; `onLines` gets whole lines. It fails when nothing has come for `silence` ms. */
export async function stream(path, { onLines, onOpen, silence, signal, ...options }) {
  const silent = new AbortController();
  const either = AbortSignal.any([signal, silent.signal]);
  let timer;
  const hear = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silent.abort(new DOMException("Nothing has come", "TimeoutError")), silence);
  };
  try {
    hear();
    const response = await request("GET", path, { ...options, accept: "application/x-ndjson", signal: either });
    onOpen();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      hear();
      const { done, value } = await fromNetwork(reader.read(), either);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      if (lines.length > 0) onLines(lines);
    }
  } finally {
    clearTimeout(timer);
    silent.abort();
  }
}

let info;
/** Forgets the grants, which may have changed. */
export function forgetCaller() { info = undefined; }

/** What the server says of itself and of the token; read once on each page. */
export async function serverInfo() {
  info ??= get("v1/info");
  try {
    return await info;
  } catch (error) {
    info = undefined;
    throw error;
  }
}

/** The token and its grants; null on a server without tokens. */
export const whoami = async () => (await serverInfo()).caller ?? null;

function matches(pattern, name) {
  const parts = pattern.split("*").map((part) => part.replace(/[.\\+?^${}()|[\]]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(name);
}

/** Whether the caller may do this to a queue. */
export function may(who, verb, queue) {
  return who === null || who.grants.some((grant) => grant.verbs.includes(verb) && grant.queues.some((pattern) => matches(pattern, queue)));
}

/** A curl command of a call. The token stays out of it. */
export function curl(method, path, { query, body } = {}) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const parts = ["curl"];
  if (token !== null) parts.push('-H "authorization: Bearer $DELTAQ_TOKEN"');
  if (method !== "GET" && body === undefined) parts.push(`-X ${method}`);
  if (body !== undefined) parts.push(`--json ${quoted(JSON.stringify(body))}`);
  parts.push(quoted(urlOf(path, query).href));
  return parts.join(" ");
}
