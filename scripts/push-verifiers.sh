#!/usr/bin/env bash
# Judges the signatures of pushed requests with the official verifiers of Standard Webhooks, from PyPI and from npm: each must accept every
# request under both secrets of a rotation, and refuse it with another body, id, time or secret. Node verifies the Ed25519 signatures of private keys. The SDKs of
# CloudEvents, also from PyPI and npm, must read pushed events, lists of them, and events of pops and watches. Takes no arguments. DELTAQ_BIN is the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary

versions="standardwebhooks 1.1.0, 1.1.1, cloudevents 1.12.0, 10.0.0"
tools=$PWD/target/push-verifiers
if [ "$(cat "$tools/installed.txt" 2> /dev/null)" != "$versions" ]; then
    rm -rf "$tools"
    python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check standardwebhooks==1.1.0 cloudevents==1.12.0
    npm install --silent --no-audit --no-fund --prefix "$tools/node" standardwebhooks@1.1.1 cloudevents@10.0.0 > /dev/null
    echo "$versions" > "$tools/installed.txt"
fi

new=whsec_$(openssl rand -base64 32)
old=whsec_$(openssl rand -base64 24)
other=whsec_$(openssl rand -base64 24)
printf '%s\n%s\n' "$new" "$old" > "$work/secret"
# The private key is a seed, and the public key is the end of the DER form.
openssl genpkey -algorithm ed25519 -outform DER -out "$work/private.der"
echo "whsk_$(tail -c 32 "$work/private.der" | base64)" > "$work/private"
public=$(openssl pkey -in "$work/private.der" -inform DER -pubout -outform DER | tail -c 32 | base64)
chmod 600 "$work/secret" "$work/private"
cat > "$work/deltaq.toml" << END
[push]
allow = ["http://127.0.0.1:*"]
allow_networks = ["127.0.0.1"]
[push.secrets.shop]
file = "$PWD/$work/secret"
queues = ["*"]
[push.secrets.private]
file = "$PWD/$work/private"
queues = ["*"]
END

# Keeps each request as one line of JSON.
cat > "$work/receiver.py" << 'END'
import http.server
import json
import sys

class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        with open(sys.argv[2], "a") as file:
            print(json.dumps({"headers": headers, "body": body}), file=file)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Receiver)
with open(sys.argv[1], "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
END
python3 "$work/receiver.py" "$work/port" "$work/requests" &
receiver=$!
trap 'kill $receiver 2> /dev/null; stop_server; rm -rf "$work"' EXIT
until [ -s "$work/port" ]; do sleep 0.1; done

start_server --in-memory --config "$work/deltaq.toml"
export DELTAQ_URL=$api
url=http://127.0.0.1:$(cat "$work/port")/
"$binary" queue create full push.url="$url" push.secrets='["shop"]' > /dev/null
"$binary" queue create thin push.url="$url" push.secrets='["shop"]' push.payload=thin > /dev/null
number=0
for queue in full thin; do
    for text in plain 'größe € 😀' '\u0000\"\\/' "$(printf 'x%.0s' {1..20000})"; do
        "$binary" add "$queue" "{\"key\":\"k$((++number))\",\"n\":1.50,\"text\":\"$text\"}" > /dev/null
    done
    "$binary" wait "$queue" --idle > /dev/null
done

mv "$work/requests" "$work/signed"
"$binary" queue create events push.url="$url" push.format=cloudevents > /dev/null
"$binary" add events '{"key":"sku-1","n":1.50,"text":"größe"}' > /dev/null
"$binary" wait events --idle > /dev/null
"$binary" delete events --key sku-1 > /dev/null
"$binary" wait events --idle > /dev/null

mv "$work/requests" "$work/events"
"$binary" queue create list push.url="$url" push.secrets='["private"]' push.format=cloudevents push.batch=9 > /dev/null
"$binary" add list '[{"key":"ü 1","n":1.50},{"key":"b","n":2}]' > /dev/null
"$binary" wait list --idle > /dev/null
mv "$work/requests" "$work/lists"
"$binary" queue create popped > /dev/null
"$binary" add popped '[{"key":"ü 1","n":1.50},{"key":"b","n":2}]' > /dev/null
accept=accept:application/cloudevents-batch+json
curl -sS -H "$accept" "$api/v1/queues/popped/watch" > "$work/watched"
curl -sS -X POST -H "$accept" "$api/v1/queues/popped/pop?max=9" > "$work/popped"

cat > "$work/lists.py" << 'END'
import json
import sys
from cloudevents.http import from_json

lists, popped, watched = sys.argv[1:]
bodies = [json.loads(line)["body"] for line in open(lists)] + [open(popped).read(), open(watched).read()]
events = [from_json(json.dumps(event)) for body in bodies for event in json.loads(body)]
assert len(events) == 6, events
for event in events:
    assert event["type"] == "deltaq.item.updated" and event.get_data()["key"] == event["subject"] == event["partitionkey"], event
END
cat > "$work/lists.cjs" << 'END'
const { createPublicKey, verify } = require("node:crypto");
const { readFileSync } = require("node:fs");
const [tools, lists, popped, watched, raw] = process.argv.slice(2);
const { HTTP } = require(`${tools}/node/node_modules/cloudevents`);
const expect = (holds, what) => {
  if (!holds) throw new Error(JSON.stringify(what));
};
const headers = { "content-type": "application/cloudevents-batch+json" };
const messages = readFileSync(lists, "utf8").trim().split("\n").map((line) => JSON.parse(line));
const replies = [popped, watched].map((file) => ({ headers, body: readFileSync(file, "utf8") }));
let count = 0;
for (const message of [...messages, ...replies]) {
  for (const event of HTTP.toEvent(message)) {
    event.validate();
    expect(event.subject === event.data.key, event);
    count += 1;
  }
}
expect(count === 6, count);
const x = Buffer.from(raw, "base64").toString("base64url");
const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
for (const { headers, body } of messages) {
  const [version, signature] = headers["webhook-signature"].split(",");
  const signed = (id) => Buffer.from(`${id}.${headers["webhook-timestamp"]}.${body}`);
  const accepts = (id) => verify(null, signed(id), key, Buffer.from(signature, "base64"));
  expect(version === "v1a" && accepts(headers["webhook-id"]) && !accepts("another"), headers);
}
END
"$tools/python/bin/python" "$work/lists.py" "$work/lists" "$work/popped" "$work/watched"
node "$work/lists.cjs" "$tools" "$work/lists" "$work/popped" "$work/watched" "$public"

cat > "$work/events.py" << 'END'
import json
import sys
from cloudevents.http import from_http

requests = [json.loads(line) for line in open(sys.argv[1])]
events = [from_http(request["headers"], request["body"].encode()) for request in requests]
assert [event["type"] for event in events] == ["deltaq.item.updated", "deltaq.item.deleted"], events
for event in events:
    assert (event["source"], event["subject"], event["partitionkey"]) == ("/queues/events", "sku-1", "sku-1"), event
    assert event.get_data() == {"key": "sku-1", "n": 1.5, "text": "größe"}, event
assert events[0]["sequence"] < events[1]["sequence"] and len(events[0]["sequence"]) == 20, events
END
cat > "$work/events.cjs" << 'END'
const { readFileSync } = require("node:fs");
const [tools, requests] = process.argv.slice(2);
const { HTTP } = require(`${tools}/node/node_modules/cloudevents`);
const lines = readFileSync(requests, "utf8").trim().split("\n");
const events = lines.map((line) => HTTP.toEvent(JSON.parse(line)));
const types = events.map((event) => event.type).join();
if (types !== "deltaq.item.updated,deltaq.item.deleted") throw new Error(types);
for (const event of events) {
  event.validate();
  if (event.subject !== "sku-1" || event.data.text !== "größe") throw new Error(event.toString());
}
END
"$tools/python/bin/python" "$work/events.py" "$work/events"
node "$work/events.cjs" "$tools" "$work/events"

cat > "$work/verify.py" << 'END'
import json
import sys
from standardwebhooks import Webhook, WebhookVerificationError

requests, new, old, other = sys.argv[1:]

def accepts(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True

count = 0
for line in open(requests):
    request = json.loads(line)
    body, headers = request["body"], request["headers"]
    for secret in (new, old):
        assert accepts(secret, body, headers), request
        assert not accepts(secret, body + " ", headers), request
        assert not accepts(secret, body, headers | {"webhook-id": headers["webhook-id"] + "0"}), request
        assert not accepts(secret, body, headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}), request
    assert not accepts(other, body, headers), request
    count += 1
assert count == 8, count
END
cat > "$work/verify.mjs" << 'END'
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [tools, requests, fresh, old, other] = process.argv.slice(2);
const { Webhook } = createRequire(`${tools}/node/`)("standardwebhooks");
const accepts = (secret, body, headers) => {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    return false;
  }
};
const expect = (holds, request) => {
  if (!holds) throw new Error(JSON.stringify(request));
};
const lines = readFileSync(requests, "utf8").trim().split("\n");
for (const request of lines.map((line) => JSON.parse(line))) {
  const { body, headers } = request;
  for (const secret of [fresh, old]) {
    expect(accepts(secret, body, headers), request);
    expect(!accepts(secret, body + " ", headers), request);
    expect(!accepts(secret, body, { ...headers, "webhook-id": headers["webhook-id"] + "0" }), request);
    expect(!accepts(secret, body, { ...headers, "webhook-timestamp": String(Number(headers["webhook-timestamp"]) + 1) }), request);
  }
  expect(!accepts(other, body, headers), request);
}
expect(lines.length === 8, lines.length);
END
"$tools/python/bin/python" "$work/verify.py" "$work/signed" "$new" "$old" "$other"
node "$work/verify.mjs" "$tools" "$work/signed" "$new" "$old" "$other"
echo "the verifiers of PyPI and npm accept the signatures of 8 requests, and nothing else; Node accepts those of a private key; the SDKs of CloudEvents read 2 events and 6 in lists"
