#!/usr/bin/env bash
# Generates a Python client from docs/openapi.json with openapi-python-client, and uses it against a server: no operation and no response
# may be lost. DELTAQ_BIN names a binary to use instead of building one. All files go to target/.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(./scripts/tools.sh)
mkdir -p target
work=$(mktemp -d target/generated-client.XXXXXX)
server=

finish() {
    if [ -n "$server" ]; then
        kill "$server" 2> /dev/null || true
        wait "$server" 2> /dev/null || true
    fi
    rm -rf "$work"
}
trap finish EXIT

binary=${DELTAQ_BIN:-}
if [ -z "$binary" ]; then
    cargo build --locked --quiet
    binary=${CARGO_TARGET_DIR:-target}/debug/deltaq
fi

"$tools/openapi-python-client" generate --path docs/openapi.json --meta none --output-path "$work/client" > "$work/log" 2>&1 \
    || { cat "$work/log" >&2; exit 1; }
"$binary" serve --in-memory --listen 127.0.0.1:0 --metrics-listen "" --ready-file "$work/ready" --log-level warn &
server=$!
until [ -e "$work/ready" ]; do
    kill -0 "$server"
    sleep 0.1
done
api=http://$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["api"])' "$work/ready")
PYTHONDONTWRITEBYTECODE=1 timeout 60 "$tools/python3" scripts/generated_client.py "$work" "$work/log" docs/openapi.json "$api"
