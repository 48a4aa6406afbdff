#!/usr/bin/env bash
# Checks that the published crates can be packaged with every file that they need. Takes no arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
# A package that was not committed is checked, too. Their code is built and tested by other steps.
cargo package --locked --allow-dirty --no-verify --target-dir target/packages -p deltaq-types -p deltaq-client
