#!/usr/bin/env bash
# Checks clients/typescript in a copy under target/typescript: compiles it strictly, runs its tests and its scenarios, and installs its package
# into an empty project. DELTAQ_BIN names the deltaq binary.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/node.sh
. scripts/node.sh

DELTAQ_BIN=$(realpath "${DELTAQ_BIN:?must name the deltaq binary}")
export DELTAQ_BIN
copy=$PWD/target/typescript
mkdir -p "$copy"
# The installed packages stay, for as long as the lock file does.
find "$copy" -mindepth 1 -maxdepth 1 ! -name node_modules ! -name installed.json -exec rm -rf {} +
cp -r clients/typescript/{src,test,scenarios,checks,README.md,.npmrc} clients/typescript/*.json "$copy"
cd "$copy"
if ! cmp -s package-lock.json installed.json; then
    rm -f installed.json
    npm ci --silent
    cp package-lock.json installed.json
fi

npx tsc --project tsconfig.json
npx tsc --project tsconfig.deltaqtest.json
npx tsc --project tsconfig.build.json
node --test build/test/*.test.js > test.log || { cat test.log; exit 1; }
tail -n 8 test.log
node checks/package.mjs
node checks/browser.mjs
cd ../..
CARGO_TARGET_DIR=$PWD/target python3 tests/clients/run.py --client typescript --jobs 4
