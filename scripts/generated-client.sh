#!/usr/bin/env bash
# Generates Python clients from docs/openapi.json with openapi-python-client and with openapi-generator, and uses both against a server: no
# operation and no response may be lost. A Go client is generated, too. DELTAQ_BIN names a binary to use instead of building one. All files go to target/.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(./scripts/tools.sh)
. scripts/server.sh
find_binary

generate() { # command
    "$@" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
}

use() { # script, arguments
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$work timeout 60 "$tools/python3" "$@" docs/openapi.json "$api"
}

start_server --in-memory

generate "$tools/openapi-python-client" generate --path docs/openapi.json --meta none --output-path "$work/client"
use scripts/generated-client/openapi_python_client.py "$work"

PATH=$tools:$PATH generate "$tools/openapi-generator-cli" generate --generator-name python --input-spec docs/openapi.json --output "$work"
use scripts/generated-client/openapi_generator.py

# Go has one name space for the values of all enums.
PATH=$tools:$PATH generate "$tools/openapi-generator-cli" generate --generator-name go --additional-properties enumClassPrefix=true \
    --input-spec docs/openapi.json --output "$work/go"
grep --quiet 'AddedRow \*AddedRow' "$work/go/model_watch_row.go"
echo "openapi-generator: Go"

cat "$server_log" >&2
