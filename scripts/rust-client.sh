#!/usr/bin/env bash
# Checks the Rust client: the examples of its documents, the scenarios of all clients, and its packages, which are built from their archives. Takes no
# arguments and stops at the first failure. DELTAQ_BIN is the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary

# Other crates have no doctests: tests/it/tidy.rs checks that.
cargo test --doc --locked -p deltaq-client -p deltaq-types
# With the features of the workspace, for which the dependencies are built.
cargo build --locked --workspace --example scenarios
python3 tests/clients/run.py --client rust --server "$binary"
# A package that was not committed is checked, too. Its build has a folder of its own: scripts/image.sh reads the dependency files of the other one.
cargo package --locked --allow-dirty --target-dir target/packages -p deltaq-types -p deltaq-client
