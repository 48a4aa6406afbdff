#!/usr/bin/env bash
# Builds the simulator in target/simulator: the engine as WebAssembly, the page, and the rule scripts. `just site` puts it on the first page of
# the documents, and a release has it in its archive. Needs the standard library of Rust for WebAssembly, which rustup installs.
#
#     scripts/simulator.sh            # build
#     scripts/simulator.sh --check    # build, lint the code, and run all rule scripts in Chromium
set -euo pipefail
cd "$(dirname "$0")/.."

target=wasm32-unknown-unknown
manifest=simulator/Cargo.toml
if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
    echo "Rust has no standard library for $target: rustup target add $target" >&2
    exit 1
fi

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
if [ "${1:-}" = --check ]; then
    cargo fmt --check --manifest-path "$manifest"
    cargo clippy --release --locked --manifest-path "$manifest" --target "$target" -- -D warnings
fi
# The module names no folder of this machine. The same commit in the same folder gives the same module.
cargo=${CARGO_HOME:-$HOME/.cargo}
export RUSTFLAGS="--remap-path-prefix=$cargo=cargo --remap-path-prefix=$PWD=deltaq"
cargo build --release --locked --manifest-path "$manifest" --target "$target"
folder=$CARGO_TARGET_DIR/$target/release
python3 scripts/simulator_page.py "$folder/deltaq_simulator.wasm" target/simulator
if [ "${1:-}" = --check ]; then python3 scripts/simulator_check.py target/simulator; fi
