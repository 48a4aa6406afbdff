#!/usr/bin/env bash
# Holds the running server against its own /openapi.json: schemathesis makes up requests, right and wrong ones, and all
# its checks are on. Uses target/ for everything it makes; DELTAQ_BIN names a binary to use instead of building one, and
# MAX_EXAMPLES (default 25) says how many requests each operation gets at random, beside those at its edges.
#
# What holds by the state of a queue only, and so in no OpenAPI document, is said in scripts/schemathesis.toml and
# scripts/schemathesis_hooks.py. The server has a token, so that it is also seen that nobody is let in without it. One check has
# nothing to look at, since there are no objects that belong to one user: object_level_authorization.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly version=4.32.5
readonly seed=20240501
target=${CARGO_TARGET_DIR:-target}
venv=target/venv
mkdir -p target
work=$(mktemp -d target/schemathesis.XXXXXX)
server=

finish() {
    if [ -n "$server" ]; then
        kill "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

if [ "$("$venv/bin/schemathesis" --version 2> /dev/null || true)" != "schemathesis, version $version" ]; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi

binary=${DELTAQ_BIN:-}
# The server would take it for a setting that it does not know.
unset DELTAQ_BIN
if [ -z "$binary" ]; then
    cargo build --locked --quiet
    binary=$target/debug/deltaq
fi

token=$("$binary" token schemathesis --verbs read,produce,consume,admin --queues '*' --file "$work/tokens.toml")

# One worker: Python 3.11 loses count in ast.parse when two threads call it (python/cpython#106905), and hypothesis does.
# Long polls are short here: a request that waits tests nothing meanwhile.
# The audit goes to a file, so that the log has only what somebody should look at.
DELTAQ_SERVER__MAX_WAIT=100ms DELTAQ_ACCESS__TOKENS_FILE=$work/tokens.toml DELTAQ_AUDIT__FILE=$work/audit.jsonl \
    "$binary" serve --in-memory --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 \
    --ready-file "$work/ready" --log-format json --log-level warn > "$work/log" 2>&1 &
server=$!
for _ in $(seq 100); do
    [ -f "$work/ready" ] && break
    kill -0 "$server" 2> /dev/null || break
    sleep 0.1
done
if [ ! -f "$work/ready" ]; then
    echo "the server did not start:" >&2
    cat "$work/log" >&2
    exit 1
fi
api=http://$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["api"])' "$work/ready")

# The names that the document gives as examples are there.
curl --silent --show-error --fail --header "authorization: Bearer $token" --json '{"object":{"key":"sku-1","price":10}}' "$api/v1/queues/prices/seed" > /dev/null

status=0
PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS=schemathesis_hooks \
    timeout 300 "$venv/bin/schemathesis" --config-file scripts/schemathesis.toml run "$api/openapi.json" --header "Authorization: Bearer $token" \
    --checks all --max-examples "${MAX_EXAMPLES:-25}" --seed "$seed" --workers 1 --request-timeout 20 \
    --continue-on-failure --generation-database none --report-dir "$work" || status=$?
if ! kill -0 "$server" 2> /dev/null; then
    echo "the server did not survive" >&2
    status=1
fi
if [ -s "$work/log" ]; then
    echo "the server's log:" >&2
    tail -n 50 "$work/log" >&2
fi
exit "$status"
