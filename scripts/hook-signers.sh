#!/usr/bin/env bash
# Judges the setting hook of queues with deliveries that the libraries of the vendors sign. Per scheme a right delivery is applied once, and
# another body, secret or time is refused. Then deliveries of GitHub about issues are replayed in random orders, with repeats: each order must
# end with the newest object of each issue. Takes no arguments. HOOK_SIGNERS_SEED=NUMBER repeats the orders of a run that failed. DELTAQ_BIN is
# the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary

python=(svix==2.9.1 standardwebhooks==1.1.0 slack-sdk==3.48.0)
node=(standardwebhooks@1.1.1 stripe@23.1.0 @octokit/webhooks-methods@6.0.0 @shopify/shopify-api@15.0.0)
versions="${python[*]} ${node[*]}"
tools=$PWD/target/hook-signers
if [ "$(cat "$tools/installed.txt" 2> /dev/null)" != "$versions" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check "${python[@]}"
    npm install --silent --no-audit --no-fund --prefix "$tools/node" "${node[@]}" > /dev/null
    echo "$versions" > "$tools/installed.txt"
fi

# The limit of an address is raised, because all vendors have one address here.
printf '[hooks]\nmax_per_second = 100000\n' > "$work/deltaq.toml"
# The forms of the secrets are those of the vendors. The file of a name has the secret of now and the one before; the server has no other one.
while read -r name prefix form bytes; do
    for secret in now before other; do
        printf '%s%s\n' "${prefix#-}" "$(openssl rand "$form" "$bytes")" > "$work/$name.$secret"
    done
    cat "$work/$name.now" "$work/$name.before" > "$work/$name"
    chmod 600 "$work/$name"
    printf '[hooks.secrets.%s]\nfile = "%s"\nqueues = ["%s", "%s-*"]\n' "$name" "$PWD/$work/$name" "$name" "$name" >> "$work/deltaq.toml"
done << 'END'
svix whsec_ -base64 24
standard whsec_ -base64 32
stripe whsec_ -hex 16
stripe-cli whsec_ -hex 32
gh - -base64 30
shopify shpss_ -hex 16
slack - -hex 16
gitlab - -base64 24
hmac - -hex 32
END
start_server --in-memory --config "$work/deltaq.toml"

# Prints the signature that a library of PyPI makes of a delivery.
cat > "$work/sign.py" << 'END'
import datetime
import json
import sys

given = json.load(sys.stdin)
secret, time, body = given["secret"], given["time"], given["body"]
if given["library"] == "svix":
    from svix.webhooks import Webhook

    print(Webhook(secret).sign(given["id"], datetime.datetime.fromtimestamp(time, datetime.timezone.utc), body))
else:
    from slack_sdk.signature import SignatureVerifier

    print(SignatureVerifier(secret).generate_signature(timestamp=str(time), body=body))
END

cat > "$work/client.mjs" << 'END'
import { isDeepStrictEqual } from "node:util";

const api = process.argv[2];
export const failures = [];

// Records a failure, and goes on.
export function expect(holds, name, seen) {
  if (!holds) failures.push(`${name}: ${typeof seen === "string" ? seen : JSON.stringify(seen)}`);
}

export async function call(method, path, body, headers = {}) {
  const reply = await fetch(api + path, { method, body, headers: { "content-type": "application/json", ...headers } });
  const text = await reply.text();
  return { status: reply.status, body: text === "" ? null : JSON.parse(text) };
}

export async function create(queue, settings) {
  const { status, body } = await call("PUT", `/v1/queues/${queue}`, JSON.stringify(settings));
  if (status !== 201) throw new Error(`the queue ${queue} was not created: ${JSON.stringify(body)}`);
}

export const deliver = (queue, headers, body) => call("POST", `/v1/hooks/${queue}`, body, headers);

// Whether a reply is 202 with these members.
export const answers = (reply, members) =>
  reply.status === 202 && Object.entries(members).every(([name, value]) => reply.body[name] === value);

// Expects this newest object of a key; null if it must have none.
export async function expectLatest(name, queue, key, object) {
  const reply = await call("GET", `/v1/queues/${queue}/latest/${encodeURIComponent(key)}`);
  const isRight = object === null ? reply.status === 404 : reply.status === 200 && isDeepStrictEqual(reply.body.object, object);
  expect(isRight, `${name}: the newest object of ${key} in the queue ${queue} must be ${JSON.stringify(object)}`, reply);
}

export const kept = async (queue) => (await call("GET", `/v1/queues/${queue}/hook/deliveries`)).body.deliveries;

export function finish(summary) {
  if (failures.length > 0) {
    console.error(failures.join("\n"));
    console.error(`${failures.length} failures`);
    process.exit(1);
  }
  console.log(summary);
}
END

cat > "$work/schemes.mjs" << 'END'
import { spawnSync } from "node:child_process";
import { createHmac, randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { HashFormat, createSHA256HMAC } from "@shopify/shopify-api/runtime";
import { sign as signOfGithub } from "@octokit/webhooks-methods";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { answers, create, deliver, expect, expectLatest, finish, kept } from "./client.mjs";

const [, , , tools, work] = process.argv;
const python = (library, given) => {
  const input = JSON.stringify({ library, ...given });
  const done = spawnSync(`${tools}/python/bin/python`, [`${work}/sign.py`], { input, encoding: "utf8" });
  if (done.status !== 0) throw new Error(done.stderr);
  return done.stdout.trim();
};
const timeOf = (second) => new Date(Date.UTC(2026, 10, 21, 4, 20, second)).toISOString().replace(".000", "");

// Deliveries of Standard Webhooks: a price, in the whole body.
const standard = {
  settings: { key: ["/data/sku"], version: "/timestamp", hook: { scheme: "standard" } },
  key: "sku/ä 1",
  body: (_, n) => JSON.stringify({
    type: "price.updated", timestamp: timeOf(n), data: { sku: "sku/ä 1", price: n + 0.25, text: "größe \" € 😀" },
  }),
  object: (event) => event,
  id: () => `msg_${randomUUID()}`,
  headers: (id, time, signature) => ({ "webhook-id": id, "webhook-timestamp": `${time}`, "webhook-signature": signature }),
  join: (headers, more) => ({ ...headers, "webhook-signature": `${more["webhook-signature"]} ${headers["webhook-signature"]}` }),
  signed: ["webhook-id", "webhook-timestamp"],
};
// A member `time` says that a signature is of a time, `signed` which other headers are signed, and `join` puts two signatures into one delivery.
const stripe = {
  settings: { key: ["/id"], hook: { scheme: "stripe", object: "/data/object" } },
  key: "cus_QXg1o8vlGbWhpE",
  time: true,
  // Stripe indents its JSON.
  body: (id, n) => JSON.stringify({
    id, object: "event", api_version: "2026-10-29.clover", created: 1795234803 + n, livemode: false, pending_webhooks: 1,
    request: { id: "req_9GkXrTRWp1mDEt", idempotency_key: null }, type: "customer.updated",
    data: {
      object: { id: "cus_QXg1o8vlGbWhpE", object: "customer", balance: n, email: "anna@shop.example", metadata: {}, name: "Änne Müller" },
    },
  }, null, 2),
  object: (event) => event.data.object,
  id: () => `evt_${randomUUID().replaceAll("-", "")}`,
  sign: (secret, id, time, body) =>
    ({ "stripe-signature": Stripe.webhooks.generateTestHeaderString({ payload: body, secret, timestamp: time }) }),
  join: (headers, more) => ({ "stripe-signature": `${headers["stripe-signature"]},${more["stripe-signature"].split(",")[1]}` }),
  signed: [],
};
const schemes = {
  // Svix sends its headers with names of its own.
  svix: {
    ...standard,
    time: true,
    sign: (secret, id, time, body) =>
      ({ "svix-id": id, "svix-timestamp": `${time}`, "svix-signature": python("svix", { secret, id, time, body }) }),
    join: (headers, more) => ({ ...headers, "svix-signature": `${more["svix-signature"]} ${headers["svix-signature"]}` }),
    signed: ["svix-id", "svix-timestamp"],
  },
  standard: {
    ...standard,
    time: true,
    sign: (secret, id, time, body) => standard.headers(id, time, new Webhook(secret).sign(id, new Date(time * 1000), body)),
  },
  stripe,
  "stripe-cli": stripe,
  gh: {
    settings: { key: ["/node_id"], version: "/updated_at", hook: { scheme: "github", object: "/pull_request" } },
    key: "PR_kwDOKs0RLM5hPq2x",
    body: (_, n) => JSON.stringify({
      action: "edited", number: 7,
      pull_request: {
        node_id: "PR_kwDOKs0RLM5hPq2x", number: 7, state: "open", title: `Größe ${n} ändern`, body: null, updated_at: timeOf(n),
      },
    }),
    object: (event) => event.pull_request,
    id: () => randomUUID(),
    sign: async (secret, id, _, body) =>
      ({ "x-github-event": "pull_request", "x-github-delivery": id, "x-hub-signature-256": await signOfGithub(secret, body) }),
    signed: [],
  },
  shopify: {
    settings: { key: ["/admin_graphql_api_id"], version: "/updated_at", hook: { scheme: "shopify" } },
    key: "gid://shopify/Product/788032119674292922",
    body: (_, n) => JSON.stringify({
      id: 788032119674292, admin_graphql_api_id: "gid://shopify/Product/788032119674292922", title: "Tee \"Größe M\" 😀",
      updated_at: timeOf(n), variants: [{ id: 642667041472713, price: `${n}.50`, sku: null }],
    }),
    object: (event) => event,
    id: () => randomUUID(),
    sign: async (secret, id, _, body) => ({
      "x-shopify-topic": "products/update", "x-shopify-webhook-id": id,
      "x-shopify-hmac-sha256": await createSHA256HMAC(secret, body, HashFormat.Base64),
    }),
    signed: [],
  },
  slack: {
    settings: { key: ["/id"], version: "/updated", hook: { scheme: "slack", object: "/event/user" } },
    key: "U061F7AUR",
    time: true,
    body: (id, n) => JSON.stringify({
      token: "z26uFbvR1xHJEdHE1OQiO6t8", team_id: "T061EG9RZ", api_app_id: "A0FFV41KK", type: "event_callback",
      event_id: id, event_time: 1795234803 + n,
      event: {
        type: "user_change", event_ts: "1795234803.0001",
        user: { id: "U061F7AUR", name: "anna", real_name: "Änne Müller", updated: 1795234803 + n },
      },
    }),
    object: (event) => event.event.user,
    id: () => `Ev${randomUUID().slice(0, 8).toUpperCase()}`,
    sign: (secret, _, time, body) =>
      ({ "x-slack-request-timestamp": `${time}`, "x-slack-signature": python("slack", { secret, time, body }) }),
    signed: ["x-slack-request-timestamp"],
  },
  gitlab: {
    settings: { key: ["/id"], version: "/updated_at", hook: { scheme: "gitlab", object: "/object_attributes" } },
    key: "301",
    // The token says nothing about the body.
    // A repeat has the same x-gitlab-event-uuid here. How GitLab repeats a delivery is not judged.
    bodyIsNotSigned: true,
    body: (_, n) => JSON.stringify({
      object_kind: "issue", event_type: "issue", project: { id: 1, path_with_namespace: "shop/prices" },
      object_attributes: { id: 301, iid: 23, title: "Größe", state: "opened", action: "update", updated_at: timeOf(n) },
    }),
    object: (event) => event.object_attributes,
    id: () => randomUUID(),
    sign: (secret, id) => ({ "x-gitlab-event": "Issue Hook", "x-gitlab-event-uuid": id, "idempotency-key": id, "x-gitlab-token": secret }),
    signed: [],
  },
  hmac: {
    settings: {
      key: ["/sku"], version: "/n",
      hook: {
        scheme: "hmac", id: "header:x-delivery",
        signature: { header: "x-signature", prefix: "v1=", encoding: "base64", timestamp_header: "x-time" },
      },
    },
    key: "sku-1",
    time: true,
    body: (_, n) => JSON.stringify({ sku: "sku-1", n, text: "größe" }),
    object: (event) => event,
    id: () => randomUUID(),
    sign: (secret, id, time, body) => ({
      "x-delivery": id, "x-time": `${time}`, "x-signature": `v1=${createHmac("sha256", secret).update(`${time}.${body}`).digest("base64")}`,
    }),
    join: (headers, more) => ({ ...headers, "x-signature": `${more["x-signature"]},${headers["x-signature"]}` }),
    signed: ["x-time"],
  },
};

const counts = { applied: 0, repeated: 0, refused: 0 };

async function judge(queue, scheme) {
  const secretOf = (name) => readFileSync(`${work}/${queue}.${name}`, "utf8").trim();
  const { settings, key } = scheme;
  await create(queue, { ...settings, hook: { ...settings.hook, secrets: [queue] } });
  const start = Math.floor(Date.now() / 1000);
  let number = 0;
  let newest = null;
  const sign = (secret, id, time, body) => scheme.sign(secretOf(secret), id, time, body);

  // A delivery that is applied. `edit` may change its headers.
  const applied = async (name, secret, late = 0, edit = (headers) => headers) => {
    const id = scheme.id();
    const body = scheme.body(id, ++number);
    const headers = await edit(await sign(secret, id, start - late, body), id, start - late, body);
    const first = await deliver(queue, headers, body);
    expect(answers(first, { accepted: true, duplicate: false, stale: false, reason: null }), `${queue}, ${name}`, first);
    newest = scheme.object(JSON.parse(body));
    await expectLatest(`${queue}, ${name}`, queue, key, newest);
    const again = await deliver(queue, headers, body);
    const isRepeat = answers(again, { accepted: true, duplicate: true, resource_version: first.body.resource_version });
    expect(isRepeat, `${queue}, the repeat of ${name}`, again);
    counts.applied++;
    counts.repeated++;
    return { id, body, headers };
  };
  // A delivery that is refused, with an id and an object that the queue has not had.
  const refused = async (name, secret, late, edit) => {
    const id = scheme.id();
    const body = scheme.body(id, number + 1);
    const delivery = { id, body, headers: await sign(secret, id, start - late, body) };
    const { headers, body: sent } = { ...delivery, ...edit?.(delivery) };
    const reply = await deliver(queue, headers, sent);
    expect(reply.status === 401, `${queue}, ${name} must get 401`, reply);
    counts.refused++;
  };

  await applied("a right delivery", "now");
  await applied("a delivery with the secret before a rotation", "before");
  await refused("another secret", "other", 0);
  await refused("no headers", "now", 0, () => ({ headers: {} }));
  if (!scheme.bodyIsNotSigned) {
    await refused("another body", "now", 0, ({ id }) => ({ body: scheme.body(id, number + 2) }));
    await refused("a body with a space", "now", 0, ({ body }) => ({ body: `${body} ` }));
  }
  for (const header of scheme.signed) {
    const another = header.endsWith("-id") ? `msg_${randomUUID()}` : `${start + 1}`;
    await refused(`another ${header}`, "now", 0, ({ headers }) => ({ headers: { ...headers, [header]: another } }));
  }
  if (scheme.time) {
    await applied("a signature of 4 minutes ago", "now", 240);
    await applied("a signature of a clock that is 4 minutes ahead", "now", -240);
    await refused("a signature of 10 minutes ago", "now", 600);
    await refused("a signature of a clock that is 10 minutes ahead", "now", -600);
  }
  if (scheme.join) {
    const join = async (headers, id, time, body) => scheme.join(headers, await sign("other", id, time, body));
    await applied("two signatures, of which one is right", "now", 0, join);
  }
  await expectLatest(`${queue}, after the refused deliveries`, queue, key, newest);
  const list = await kept(queue);
  expect(list.length === 0, `${queue}: no delivery must be kept`, list);

  if (settings.hook.scheme === "slack") {
    const challenge = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P";
    const body = JSON.stringify({ token: "z26uFbvR1xHJEdHE1OQiO6t8", challenge, type: "url_verification" });
    const right = await deliver(queue, await sign("now", null, start, body), body);
    expect(right.status === 200 && right.body.challenge === challenge, "the challenge of slack", right);
    const wrong = await deliver(queue, await sign("other", null, start, body), body);
    expect(wrong.status === 401, "a challenge with another secret must get 401", wrong);
    counts.refused++;
  }
}

for (const [queue, scheme] of Object.entries(schemes)) await judge(queue, scheme);
finish(
  `${Object.keys(schemes).join(", ")}: ${counts.applied} signed deliveries are applied, their ${counts.repeated} repeats change nothing, ` +
    `and ${counts.refused} others get 401`,
);
END

cat > "$work/orders.mjs" << 'END'
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { sign } from "@octokit/webhooks-methods";
import { answers, call, create, deliver, expect, expectLatest, finish, kept } from "./client.mjs";

const [, , , , work, seed] = process.argv;
const ORDERS = 20;
const REPEATS = 8;
const secret = readFileSync(`${work}/gh.now`, "utf8").trim();
const settings = {
  key: ["/node_id"], version: "/updated_at",
  hook: {
    scheme: "github", secrets: ["gh"], object: "/issue",
    only: [{ header: "x-github-event", values: ["issues"] }],
    deleted: { pointer: "/action", values: ["deleted"] },
  },
};

// What GitHub sent: the event, the action, the number of the issue, the second, and what changed. A deletion has the time of the last edit.
const bug = {
  id: 6207185102, node_id: "LA_kwDOKs0RLM8AAAABcflpzg", name: "bug", color: "d73a4a", default: true, description: "Something isn't working",
};
const series = [
  ["ping", null, 0, 0, {}],
  ["issues", "opened", 1, 3, {}],
  ["issues", "opened", 2, 5, { title: "Größe \"M\" fehlt im Lager 😀" }],
  ["issues", "edited", 1, 9, { body: "Since the last import, every price is 0.\r\n\r\n```\nprice: 0\n```" }],
  ["issues", "labeled", 1, 10, { labels: [bug] }],
  ["issues", "opened", 3, 12, { title: "Remove the old import", body: "It is not used any more." }],
  ["issue_comment", "created", 1, 20, { comments: 1 }],
  ["issues", "labeled", 2, 21, { labels: [bug] }],
  ["issues", "closed", 1, 33, { state: "closed", state_reason: "completed", closed_at: "2026-11-21T04:20:33Z" }],
  ["issues", "edited", 2, 37, { title: "Größe M fehlt" }],
  ["issues", "deleted", 2, 37, {}],
  ["issues", "edited", 3, 41, { body: "It is not used any more. See #1." }],
  // The comment is deleted, not the issue, and the issue has a newer time than in all other deliveries.
  ["issue_comment", "deleted", 3, 59, { comments: 0 }],
  ["issues", "reopened", 1, 47, { state: "open", state_reason: "reopened", closed_at: null }],
  ["issues", "closed", 3, 52, { state: "closed", state_reason: "not_planned", closed_at: "2026-11-21T04:20:52Z" }],
];
const user = {
  login: "anna-example", id: 5830184, node_id: "MDQ6VXNlcjU4MzAxODQ=",
  avatar_url: "https://avatars.githubusercontent.com/u/5830184?v=4",
  html_url: "https://github.com/anna-example", type: "User", site_admin: false,
};
const repository = {
  id: 718082348, node_id: "R_kgDOKs0RLA", name: "prices", full_name: "shop-example/prices", private: true,
  owner: { login: "shop-example", id: 150412873, node_id: "O_kgDOCPcaSQ", type: "Organization" },
  html_url: "https://github.com/shop-example/prices", default_branch: "main",
};
const issues = new Map();
const deliveries = [];
for (const [event, action, number, second, changes] of series) {
  const at = `2026-11-21T04:20:${String(second).padStart(2, "0")}Z`;
  const url = `https://api.github.com/repos/shop-example/prices/issues/${number}`;
  const before = issues.get(number) ?? {
    url, html_url: `https://github.com/shop-example/prices/issues/${number}`,
    id: 2005130000 + number, node_id: `I_kwDOKs0RLM53g${number}5a`, number, title: "Prices are wrong", user, labels: [], state: "open",
    locked: false, assignee: null, assignees: [], milestone: null, comments: 0,
    created_at: at, updated_at: at, closed_at: null, author_association: "MEMBER", active_lock_reason: null, body: null,
    reactions: { url: `${url}/reactions`, total_count: 0, "+1": 0, "-1": 0 }, timeline_url: `${url}/timeline`, state_reason: null,
  };
  const issue = { ...before, ...changes, updated_at: at };
  // The number of comments of a comment's delivery is nothing that a delivery about the issue brings.
  if (event === "issues") issues.set(number, issue);
  const hook = { type: "Repository", id: 446293124, active: true, events: ["issues", "issue_comment"] };
  const subject = event === "ping" ? { zen: "Keep it logically awesome.", hook_id: hook.id, hook } : { action, issue };
  const payload = { ...subject, repository, sender: user };
  const body = JSON.stringify(payload);
  const id = `${(0x72d3162e + deliveries.length).toString(16)}-cc78-11e3-81ab-4c9367dc0958`;
  const headers = {
    "user-agent": "GitHub-Hookshot/044aadd", "x-github-event": event, "x-github-delivery": id, "x-github-hook-id": "446293124",
    "x-hub-signature-256": await sign(secret, body),
  };
  deliveries.push({ event, action, issue, headers, body, name: `${event} ${action} of issue ${number}` });
}
const about = deliveries.filter(({ event }) => event === "issues");
// The newest object of each issue; null if it is deleted.
const ends = [...new Set(about.map(({ issue }) => issue.node_id))].map((key) => {
  const all = about.filter(({ issue }) => issue.node_id === key);
  const newest = all.reduce((one, other) => (other.issue.updated_at > one.issue.updated_at ? other : one));
  return [key, all.some(({ action }) => action === "deleted") ? null : newest.issue];
});

let state = Number(seed) >>> 0;
// Mulberry32: a number from 0 to below `end`.
function random(end) {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) % end;
}

function shuffled(all) {
  const order = [...all];
  for (let at = order.length - 1; at > 0; at--) {
    const other = random(at + 1);
    [order[at], order[other]] = [order[other], order[at]];
  }
  return order;
}

// Acknowledges everything that waits, and keeps what a worker would have stored.
async function workOff(queue, stored) {
  let settle = [];
  for (;;) {
    const { status, body } = await call("POST", `/v1/queues/${queue}/pop?max=100`, JSON.stringify({ settle }));
    if (status !== 200) throw new Error(JSON.stringify(body));
    if (body.items.length === 0) return;
    for (const { key, deltas } of body.items) {
      const { type, object } = deltas.at(-1);
      if (type === "Deleted") stored.delete(key);
      else stored.set(key, object);
    }
    settle = body.items.map(({ lease }) => ({ lease_id: lease.id, as: "ack" }));
  }
}

const others = deliveries.length - about.length;
const counts = { sent: 0, duplicate: 0, stale: 0, filtered: 0 };

// Sends an order one by one. Every answer is known.
async function replay(queue, order, isWorking, stored) {
  const seen = new Set();
  const newest = new Map();
  for (const [at, delivery] of order.entries()) {
    const { event, action, issue, headers, body, name } = delivery;
    const { updated_at: version, node_id: key } = issue;
    const held = newest.get(key);
    const reply = await deliver(queue, headers, body);
    let expected;
    if (event !== "issues") {
      // It is not applied, so its repeat is no duplicate of one that was.
      expected = { accepted: false, duplicate: false, reason: "filtered" };
    } else if (seen.has(delivery)) {
      expected = { accepted: true, duplicate: true };
    } else {
      // A deletion with the time of the newest object is applied.
      const isTie = held !== undefined && version === held.version && action === "deleted" && !held.isDeleted;
      const stale = held !== undefined && version <= held.version && !isTie;
      expected = { accepted: true, duplicate: false, stale, reason: null };
      if (!stale) newest.set(key, { version, isDeleted: action === "deleted" });
    }
    seen.add(delivery);
    expect(answers(reply, expected), `${queue}, delivery ${at + 1}, ${name}, must be ${JSON.stringify(expected)}`, reply);
    count(reply);
    if (isWorking && at % 3 === 2) await workOff(queue, stored);
  }
}

// Sends all deliveries of an order at once. Of the copies of each that is applied, exactly one must be no duplicate.
async function replayAtOnce(queue, order) {
  const replies = await Promise.all(order.map(({ headers, body }) => deliver(queue, headers, body)));
  replies.forEach((reply, at) => {
    expect(reply.status === 202, `${queue}, ${order[at].name}, sent at once`, reply);
    count(reply);
  });
  for (const delivery of about) {
    const first = replies.filter((reply, at) => order[at] === delivery && reply.body.duplicate === false);
    expect(first.length === 1, `${queue}: of the copies of ${delivery.name}, one must be no duplicate`, first);
  }
}

function count({ body }) {
  counts.sent++;
  if (body.duplicate) counts.duplicate++;
  if (body.stale) counts.stale++;
  if (body.reason === "filtered") counts.filtered++;
}

for (let run = 1; run <= ORDERS; run++) {
  const queue = `gh-${run}`;
  const order = shuffled([...deliveries, ...Array.from({ length: REPEATS }, () => deliveries[random(deliveries.length)])]);
  const stored = new Map();
  await create(queue, settings);
  // In every second order a worker acknowledges in between. Every fifth order is sent at once.
  if (run % 5 === 0) await replayAtOnce(queue, order);
  else await replay(queue, order, run % 2 === 0, stored);
  for (const [key, object] of ends) await expectLatest("the newest state", queue, key, object);
  await workOff(queue, stored);
  for (const [key, object] of ends) {
    await expectLatest("after all acks", queue, key, object);
    const held = stored.get(key) ?? null;
    expect(isDeepStrictEqual(held, object), `${queue}: a worker must have this of ${key}: ${JSON.stringify(object)}`, held);
  }
  const { body } = await call("GET", `/v1/queues/${queue}/latest`);
  expect(body.items.length === 2, `${queue}: two issues must be left`, body.items.map(({ key }) => key));
  const list = await kept(queue);
  const areRight = list.length === others && list.every(({ reason }) => reason === "filtered");
  expect(areRight, `${queue}: the ${others} deliveries of other events must be kept, once each`, list);
}
expect(isDeepStrictEqual(ends.map(([, object]) => object?.state ?? null), ["open", null, "closed"]), "the recorded series", ends);
expect(counts.sent - counts.filtered - counts.duplicate === ORDERS * about.length, "the counts of the answers", counts);
finish(
  `${ORDERS} orders of ${deliveries.length} deliveries of GitHub end with the newest issues: ${counts.sent} sent, ${counts.duplicate} repeats, ` +
    `${counts.stale} older than what the queue had, ${counts.filtered} of other events (seed ${seed})`,
);
END

ln -s "$tools/node/node_modules" "$work/node_modules"
seed=${HOOK_SIGNERS_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
failed=0
node "$work/schemes.mjs" "$api" "$tools" "$work" || failed=1
node "$work/orders.mjs" "$api" "$tools" "$work" "$seed" || { failed=1; echo "HOOK_SIGNERS_SEED=$seed repeats these orders" >&2; }
exit "$failed"
