#!/usr/bin/env bash
# Installs the programs of scripts/tools.txt (cargo-nextest, cargo-deny, schemathesis and generators of clients) and axe-core into target/tools,
# unless exactly these versions are already there, and prints the folder to put in front of PATH.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$PWD/target/tools
if ! cmp -s scripts/tools.txt "$tools/installed.txt"; then
    rm -rf "$tools"
    mkdir -p target
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement scripts/tools.txt >&2
    cp scripts/tools.txt "$tools/installed.txt"
fi
# axe-core checks that the console is accessible. The package has its file; the Python modules and what they need are not used.
axe=axe-playwright-python==0.1.8
if [ "$(cat "$tools/axe/installed.txt" 2> /dev/null)" != "$axe" ]; then
    rm -rf "$tools/axe"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --no-deps --target "$tools/axe" "$axe" >&2
    printf '%s' "$axe" > "$tools/axe/installed.txt"
fi
printf '%s\n' "$tools/bin"
