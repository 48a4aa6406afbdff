#!/usr/bin/env bash
# Runs all tests: format, lints, docs, unit and integration tests, doctests, dependency rules, and the API against its
# own description. Takes no arguments; ends with the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }
has_cargo() { command -v "cargo-$1" > /dev/null; }

step "format"
cargo fmt --check

step "clippy"
cargo clippy --all-targets --locked -- -D warnings

step "docs"
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --document-private-items --locked

step "tests"
if has_cargo nextest; then
    cargo nextest run --locked
    step "doctests"
    cargo test --doc --locked
else
    # Runs the doctests, too. All-targets would not, and would run the benches.
    cargo test --locked
fi

step "dependency rules"
if has_cargo deny; then
    # Advisories need the network: `just deny`.
    cargo deny --offline --locked check bans licenses sources
else
    echo "skipped: cargo-deny is not installed"
fi

step "API against its description"
./scripts/schemathesis.sh

step "all passed"
