#!/usr/bin/env bash
# Runs every check of the project, after it has installed what they need (scripts/setup.sh). Takes no arguments. Independent steps run beside each
# other; each prints its seconds, and the output of a step that fails is printed whole. Two checks may be skipped, and say so: the image, on a
# machine that can't run containers, and the advisories, where their database can't be fetched. The steps keep their output in target/steps.
set -euo pipefail
cd "$(dirname "$0")/.."

began=$SECONDS
# shellcheck source=scripts/setup.sh
. scripts/setup.sh
printf '%5s s  %s\n' "$((SECONDS - began))" "set up"

# Incremental compilation costs time and disk when every build starts from a new checkout.
if [ -n "${CI:-}" ]; then export CARGO_INCREMENTAL=0; fi

logs=target/steps
rm -rf "$logs"
mkdir -p "$logs"

# Runs a command and prints its seconds, or its output if it fails. Because of `||`, errexit does not hold inside the command: a function joins what it
# runs with &&.
step() { # name, command
    local name=$1 log=$logs/${1// /-}.log start=$SECONDS status=0
    shift
    "$@" > "$log" 2>&1 < /dev/null || status=$?
    if [ "$status" -eq 0 ]; then
        printf '%5s s  %s\n' "$((SECONDS - start))" "$name"
    else
        { cat "$log"; printf '%5s s  %s FAILED with status %s; its output is above\n' "$((SECONDS - start))" "$name" "$status"; } >&2
        return "$status"
    fi
}

sbom() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p') &&
        ./scripts/sbom.py "$host" | python3 scripts/sbom_check.py "$host"
}

image() { # a machine that can't run containers is no failure
    local status=0
    ./scripts/image.sh "$DELTAQ_BIN" || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ]
}

advisories() { # the RustSec database is on GitHub
    if timeout 60 cargo deny --locked fetch db; then
        cargo deny --locked check --disable-fetch advisories
    else
        echo "advisories were not checked: their database can't be fetched"
    fi
}

# The builds of below are not checked again, so this step does not wait for the lock of cargo.
tests() {
    cargo nextest run --binaries-metadata "$logs/binaries.json" --cargo-metadata "$logs/cargo.json"
}

build() {
    cargo build --workspace --tests --examples --locked &&
        cargo nextest list --workspace --locked --list-type binaries-only --message-format json > "$logs/binaries.json" &&
        cargo metadata --format-version 1 --locked > "$logs/cargo.json"
}

# Other crates have no doctests: tests/it/tidy.rs checks that.
doctests() { cargo test --doc --locked -p deltaq-client -p deltaq-types; }

step "format" cargo fmt --all --check
step "versions" ./scripts/version.py
# The comparison and the simulator have lock files of their own, in which dependencies of deltaq are listed again.
lock_of() { cargo metadata --locked --format-version 1 --manifest-path "$1/Cargo.toml" > /dev/null; }
step "lock file of the comparison" lock_of benches/peers
step "lock file of the simulator" lock_of simulator
step "dependency rules" cargo deny --locked check --hide-inclusion-graph bans licenses sources
step "SBOM" sbom
step "build" build
target=${CARGO_TARGET_DIR:-target}
DELTAQ_BIN=$(realpath "$target/debug/deltaq")
export DELTAQ_BIN

# The steps of the lanes go on after a failure, so that one run shows all that is wrong.
check() { # name, command
    step "$@" || echo "$1" >> "$logs/failed"
}

compiling() {
    check "clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
    # With the examples, so that the dependencies have the features for which clippy has checked them.
    check "docs" env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib --examples --document-private-items --locked
    check "doctests" doctests
    check "instructions" ./scripts/instructions.py
    check "packages" ./scripts/rust-packages.sh
    check "site" ./scripts/site.sh
    check "advisories" advisories
}

serving() {
    check "Python client" ./scripts/python-client.sh
    check "TypeScript client" ./scripts/typescript-client.sh
    check "Rust client" ./scripts/rust-client.sh
    check "Go client" ./scripts/go-client.sh
    check "Java client" ./scripts/java-client.sh
    check "program packages" ./scripts/program-packages.sh
    check "API against its description" ./scripts/schemathesis.sh
    check "generated clients" ./scripts/generated-client.sh
    check "Debian package" ./scripts/debian-package.sh
    check "deploy" python3 scripts/deploy_check.py "$DELTAQ_BIN"
    check "image" image
}

# A lane that is ended from outside takes with it all that it has started.
set -m
lanes=()
stop_lanes() { for lane in "${lanes[@]}"; do kill -- "-$lane" 2> /dev/null || true; done; }
trap stop_lanes EXIT
for lane in "check tests tests" compiling serving; do
    ( set +m; trap - EXIT; $lane ) &
    lanes+=($!)
done
for lane in "${lanes[@]}"; do wait "$lane"; done
trap - EXIT

if [ -e "$logs/failed" ]; then
    while read -r name; do echo "FAILED: $name" >&2; done < "$logs/failed"
    exit 1
fi

# What the tests have counted is the last line that a reader looks for.
grep -h '^ *Summary' "$logs/tests.log"
grep -h 'not checked' "$logs/image.log" "$logs/advisories.log" || true
printf '%5s s  all checks passed\n' "$((SECONDS - began))"
