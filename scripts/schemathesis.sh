#!/usr/bin/env bash
# Tests a running server against its own /openapi.json with schemathesis: generated requests, valid and invalid ones,
# with every check on. All files go to target/. Two variables change a run: DELTAQ_BIN names a binary to use instead of
# building one, and MAX_EXAMPLES (default 25) is the number of random requests per operation, besides the edge cases.
#
# Rules that depend on the state of a queue are in no OpenAPI document; scripts/schemathesis.toml and
# scripts/schemathesis_hooks.py state them. The server has a token, so that missing authorization is tested too. The check
# object_level_authorization has no effect here, because no object belongs to a user.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly seed=20240501
tools=$(./scripts/tools.sh)
. scripts/server.sh
find_binary

token=$("$binary" token schemathesis --verbs read,produce,consume,admin --queues '*' --file "$work/tokens.toml")

# One worker: Python 3.11 loses count in ast.parse when two threads call it (python/cpython#106905), and hypothesis does.
# Long polls are short: a waiting request tests nothing.
# The audit log goes to a file, so that the log holds only unexpected lines.
export DELTAQ_SERVER__MAX_WAIT=100ms DELTAQ_ACCESS__TOKENS_FILE=$work/tokens.toml DELTAQ_AUDIT__FILE=$work/audit.jsonl
start_server --in-memory --log-format json

# The queue and the key of the examples in the document exist.
curl --silent --show-error --fail --header "authorization: Bearer $token" --json '{"object":{"key":"sku-1","price":10}}' "$api/v1/queues/prices/seed" > /dev/null

status=0
PYTHONPATH=scripts PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS=schemathesis_hooks \
    timeout 300 "$tools/schemathesis" --config-file scripts/schemathesis.toml run "$api/openapi.json" --header "Authorization: Bearer $token" \
    --max-examples "${MAX_EXAMPLES:-25}" --seed "$seed" --workers 1 --request-timeout 20 \
    --continue-on-failure --generation-database none --report-dir "$work" || status=$?
if ! kill -0 "$server" 2> /dev/null; then
    echo "the server did not survive" >&2
    status=1
fi
if [ -s "$server_log" ]; then
    echo "the server's log:" >&2
    tail -n 50 "$server_log" >&2
fi
exit "$status"
