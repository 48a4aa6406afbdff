#!/usr/bin/env bash
# Checks the Rust client with the scenarios of all clients. Takes no arguments. DELTAQ_BIN is the server; without it, target/debug/deltaq is built,
# and so is the program of the scenarios.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${DELTAQ_BIN:-}" ]; then cargo build --locked --workspace --example scenarios; fi
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary
python3 tests/clients/run.py --client rust --server "$binary"
