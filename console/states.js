// What a view shows instead of its content: it loads, it failed, it may not be seen, it is empty.

import { button, h, muted, seen } from "./dom.js";
import { toQueues } from "./routes.js";

/** A state with a title, a text, and what to do. */
export function state(kind, title, text, ...actions) {
  return h("section", { class: `state ${kind}`, role: kind === "error" ? "alert" : null },
    h("h2", null, title), text && h("p", null, text), actions.length > 0 && h("p", { class: "actions" }, actions));
}

/** The place of content that loads, if that takes long. */
export function loading(text = "Loading") {
  return h("div", { class: "state loading", "aria-busy": "true" }, h("p", null, text), h("div", { class: "bars", "aria-hidden": "true" }, h("i"), h("i"), h("i")));
}

const link = (target, text) => h("a", { class: "button", href: target }, text);

/** The state for a failure. */
export function failure(error, retry) {
  const detail = seen(error.message ?? String(error));
  const id = error.document?.request_id;
  const again = button("Try again", retry);
  const reference = id ? [" ", muted("Request ", h("code", null, seen(id)), ".")] : [];
  switch (error.code) {
    case "unauthorized":
      return state("locked", "A token is needed", detail, h("button", { type: "button", class: "primary", onclick: retry }, "Enter a token"));
    case "forbidden":
      return state("locked", "The token does not permit this", [detail, ". Ask its issuer for the grant, or use another token.", ...reference], link(toQueues(), "All queues"));
    case "queue-not-found":
    case "queue-deleted":
      return state("empty", "The queue does not exist", "It was deleted, or the link has a wrong name. Producers may create it again at any time.", link(toQueues(), "All queues"), again);
    case "unreachable":
      return state("error", "The server can't be reached", "The console goes on trying and continues by itself.", again);
    case "cross-site":
      return state("error", "A proxy hides the address of the server", [detail, ". The proxy must pass on the header Host, or the setting server.allowed_origins must name this page's origin."], again);
    default:
      return state("error", error.document?.title ?? "Something went wrong in this page", [detail, ...reference], again);
  }
}

/** A strip above content that is out of date, while the reads go on. */
export function stale(error) {
  return h("p", { class: "strip", role: "status" }, `${error.document.title}. What you see is from before; the console goes on trying.`);
}
