#!/usr/bin/env bash
# Builds target/optimized/deltaq: `cargo build --release`, laid out by what the compiler has seen of deltaq under load
# (profile-guided optimization). It computes at least a seventh less for a request, and takes two builds with a minute of
# load between them. The load is `deltaq bench` of the same build, so it counts with the rest. Takes
# no arguments; CARGO_ENCODED_RUSTFLAGS is followed, RUSTFLAGS is not.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }
host=$(rustc -vV | sed -n 's/^host: //p')
profdata="$(dirname "$(rustc --print target-libdir)")/bin/llvm-profdata"
[ -x "$profdata" ] || rustup component add llvm-tools
work=$PWD/target/optimized
mkdir -p "$work"

# With --target, what runs during the build is built without these flags. They are encoded, as a path may have spaces.
build() { # folder, flag
    local between=$'\x1f'
    CARGO_ENCODED_RUSTFLAGS="${CARGO_ENCODED_RUSTFLAGS:+$CARGO_ENCODED_RUSTFLAGS$between}$2" \
        cargo build --release --locked --bin deltaq --target "$host" --target-dir "$work/$1"
}

server=
trap '[ -z "$server" ] || kill "$server"' EXIT

# What is called most: small and large requests, in memory and with the journal.
load() { # where the server keeps its queues
    local deltaq="$work/observed/$host/release/deltaq" ready="$work/ready" url
    rm -f "$ready"
    "$deltaq" serve --listen 127.0.0.1:0 --metrics-listen= --log-level warn --ready-file "$ready" "$@" &
    server=$!
    until [ -e "$ready" ]; do
        kill -0 "$server"
        sleep 0.1
    done
    url=http://$(sed -E 's/.*"api":"([^"]+)".*/\1/' "$ready")
    local scenario
    for scenario in "add" "add-pop" "add-pop-ack" "add-pop --batch 100" "add-pop --batch 10 --keys 1000" \
        "add --object-bytes 4096" "mixed" "hot-key" "hand-off --connections 4" "replace --connections 1 --batch 1000"; do
        # shellcheck disable=SC2086 # it is several words
        "$deltaq" bench --url "$url" $scenario --warm-up 0s --duration 2s
    done
    # In good order, as its profile is written at its end.
    kill "$server"
    wait "$server"
    server=
}

step "a build that observes itself"
build observed "-Cprofile-generate=$work/profiles"

step "under load"
rm -rf "$work/profiles" "$work/data"
load --in-memory
load --data-dir "$work/data"
rm -rf "$work/data" "$work/ready"
"$profdata" merge --output "$work/deltaq.profdata" "$work/profiles"

step "the build by what was observed"
# Anew: cargo does not see that the profile is another one.
rm -rf "$work/built"
build built "-Cprofile-use=$work/deltaq.profdata"
ln -f "$work/built/$host/release/deltaq" "$work/deltaq"
step "target/optimized/deltaq"
