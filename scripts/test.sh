#!/usr/bin/env bash
# Runs every check: format, dependency rules, lints, docs, unit and integration tests, and the API against its own
# description, and clients generated from it. Takes no arguments and stops at the first failure. No check is ever skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }

PATH="$(./scripts/tools.sh):$PATH"
export PATH

step "format"
cargo fmt --check

step "dependency rules"
# Known vulnerabilities need the RustSec database from GitHub: `just advisories`.
cargo deny --locked check --hide-inclusion-graph bans licenses sources

step "clippy"
cargo clippy --workspace --all-targets --locked -- -D warnings

step "docs"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

step "tests"
# There are no doctests: tests/it/tidy.rs checks that.
cargo nextest run --workspace --locked

step "API against its description"
# The tests have just built this binary.
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/schemathesis.sh

step "generated clients"
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/generated-client.sh

step "all checks passed"
