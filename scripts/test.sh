#!/usr/bin/env bash
# Runs every check: format, dependency rules, SBOM, lints, docs, unit and integration tests, and the API against its own
# description, clients generated from it, the files of deploy/, and the image. Takes no arguments and stops at the first failure. One check may
# be skipped, and says so: the image, on a machine that can't run containers.
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

step "SBOM"
host=$(rustc -vV | sed -n 's/^host: //p')
./scripts/sbom.py "$host" | python3 scripts/sbom_check.py "$host"

step "clippy"
cargo clippy --workspace --all-targets --locked -- -D warnings

step "docs"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --locked

step "tests"
cargo nextest run --workspace --locked

step "API against its description"
# The tests have just built this binary.
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/schemathesis.sh

step "generated clients"
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/generated-client.sh

step "Rust client"
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/rust-client.sh

step "TypeScript client"
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/typescript-client.sh

step "Python client"
DELTAQ_BIN=${CARGO_TARGET_DIR:-target}/debug/deltaq ./scripts/python-client.sh

step "deploy/"
python3 scripts/deploy_check.py "${CARGO_TARGET_DIR:-target}/debug/deltaq"

step "image"
./scripts/image.sh "${CARGO_TARGET_DIR:-target}/debug/deltaq" || [ $? -eq 77 ]

step "all checks passed"
