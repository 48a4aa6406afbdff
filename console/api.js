// Calls of the public API. The token is kept for this tab only, is sent in a header, and never becomes part of a URL.

import { observe } from "./clock.js";
import { parse } from "./json.js";

const STORED = "deltaq-token";
const BASE = new URL("../", document.baseURI.split("#")[0]);
/** How long a reply may take, in milliseconds, besides the wait that a call asks for. */
const PATIENCE = 30_000;
/** How often a change is sent while no node owns its queue, and the least time between two tries, in milliseconds. */
const TRIES = 5;
const AGAIN_AFTER = 500;

/** A refusal of the server, or of the network. */
export class Problem extends Error {
  constructor(document, retryAfter = null) {
    super(document.detail || document.title);
    this.document = document;
    this.code = document.code;
    this.status = document.status ?? 0;
    this.retryAfter = retryAfter;
  }
}

let token = sessionStorage.getItem(STORED);
let asksForToken = () => {};

/** The function that is called when a token is needed. */
export function onTokenNeeded(ask) { asksForToken = ask; }

export const hasToken = () => token !== null;

export function setToken(text) {
  token = text;
  caller = undefined;
  if (text === null) sessionStorage.removeItem(STORED);
  else sessionStorage.setItem(STORED, text);
}

/** The path of a queue, and of what is below it. */
export function queuePath(queue, ...rest) {
  return ["v1/queues", encodeURIComponent(queue), ...rest].join("/");
}

function urlOf(path, query) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

async function request(method, path, { query, body, text, accept, signal } = {}) {
  const headers = { accept: accept ?? "application/json" };
  if (token !== null) headers.authorization = `Bearer ${token}`;
  const sent = body === undefined ? text : JSON.stringify(body);
  if (sent !== undefined) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(urlOf(path, query), { method, headers, body: sent, signal, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (signal?.aborted && error.name === "AbortError") throw error;
    const detail = error.name === "TimeoutError" ? "The server has not replied in time." : "The server can't be reached.";
    throw new Problem({ code: "unreachable", title: detail, detail, retryable: true });
  }
  observe(response.headers.get("date"));
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const text = await response.text().catch(() => "");
  const seconds = Number(response.headers.get("retry-after"));
  let document = { code: "unknown", title: `The reply has the status ${response.status}.`, status: response.status };
  try {
    const parsed = JSON.parse(text);
    if (parsed?.code) document = parsed;
  } catch {
    // A proxy has answered in its own words.
  }
  if (document.code === "unauthorized") {
    const why = document.detail;
    document.detail = token === null ? "This server needs a token. Its operator issues them." : `${why.charAt(0).toUpperCase()}${why.slice(1)}.`;
    asksForToken(document.detail);
  }
  return new Problem(document, seconds > 0 ? seconds * 1000 : null);
}

/**
 * A call with a JSON reply. `raw` names members that stay text; without it the reply is parsed by the browser. `body` is sent
 * as JSON, and `text` as it is.
 */
export async function call(method, path, { raw, signal, patience = PATIENCE, ...options } = {}) {
  const limit = AbortSignal.timeout(patience);
  const either = signal ? AbortSignal.any([signal, limit]) : limit;
  const response = await request(method, path, { ...options, signal: either });
  if (response.status === 204) return null;
  const text = await response.text();
  return raw ? parse(text, raw) : JSON.parse(text);
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

/** Reads a stream of NDJSON; `onLines` gets whole lines as they arrive. Ends when the server ends the stream. */
export async function stream(path, { onLines, onOpen, ...options }) {
  const response = await request("GET", path, { ...options, accept: "application/x-ndjson" });
  onOpen();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    if (lines.length > 0) onLines(lines);
  }
}

let caller;
/** The token and its grants; null on a server without tokens. */
export async function whoami() {
  caller ??= get("v1/info").then((info) => info.caller ?? null);
  try {
    return await caller;
  } catch (error) {
    caller = undefined;
    throw error;
  }
}

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
