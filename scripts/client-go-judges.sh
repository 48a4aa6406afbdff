#!/usr/bin/env bash
# Runs tests and examples of client-go, of the version that clients/go/clientgo requires, on queues of deltaq. Their files are copied from the module cache
# to target/, with other constructors of queues, sources and clocks. clients/go/clientgo/README.md lists the tests that are
# left out. DELTAQ_BIN is the server; without it, target/debug/deltaq is built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/server.sh
. scripts/server.sh
find_binary
DELTAQ_BIN=$(realpath "$binary")
export DELTAQ_BIN GOTOOLCHAIN=local GOFLAGS=-mod=mod GOWORK=off
client=$PWD/clients/go
version=$(cd "$client/clientgo" && go list -m -f '{{.Version}}' k8s.io/client-go)
judge=example.com/deltaq/clients/go/clientgo/internal/judge

# The functions of a file with these names.
functions() { # FILE NAME...
    local file=$1
    shift
    for name in "$@"; do awk -v start="^func ${name}[(]" '$0 ~ start {on = 1} on {print} on && /^}/ {exit}' "$file"; done
}

module=$(go mod download -json "k8s.io/client-go@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
folder=$work/judged
mkdir "$folder"
cp "$client/clientgo/go.sum" "$folder/go.sum"
cat > "$folder/go.mod" << END
module example.com/deltaq/clients/go/clientgo/judged
go 1.23.0
require (
    example.com/deltaq/clients/go v0.0.0
    example.com/deltaq/clients/go/clientgo v0.0.0
    k8s.io/client-go $version
)
replace example.com/deltaq/clients/go => $client
replace example.com/deltaq/clients/go/clientgo => $client/clientgo
END
cat > "$folder/main_test.go" << END
package judged

import (
	"testing"

	"$judge"
)

func TestMain(m *testing.M) { judge.Main(m) }
END
# The last replacement is that of an assertion on a Go interface that orders the keys in memory.
sed -e 's/^package .*/package judged/' -e "s|^\t\"k8s.io/client-go/util/workqueue\"|&\n\t\"$judge\"|" -e 's/\*workqueue\.Type\b/*judge.Queue/' \
    -e 's/workqueue\.New()/judge.New()/; s/workqueue\.NewWithConfig(/judge.NewWithConfig(/' -e 's/; !ok {$/; false \&\& !ok {/' \
    "$module/util/workqueue/queue_test.go" > "$folder/queue_test.go"
sed -e 's/^package .*/package judged/' -e "s|^\ttestingclock .*|\t\"$judge\"|" -e '/^\t"math\/rand"$/d' -e '/^func Benchmark/,/^}/d' \
    -e 's/testingclock\.NewFakeClock(time\.Now())/judge.NewClock()/; s/NewDelayingQueueWithConfig(.*)$/judge.New()/' \
    -e 's/q DelayingInterface/q *judge.Queue/; s/len(q\.(.*)\.waitingForAddCh) == 0/q.Len() >= 0/' \
    "$module/util/workqueue/delaying_queue_test.go" > "$folder/delaying_queue_test.go"
{
    cat << END
package judged

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	. "k8s.io/client-go/tools/cache"

	"$judge"
)

var _ = context.Background

END
    functions "$module/tools/cache/controller_test.go" Example ExampleNewInformer | sed 's/fcache\.NewFakeControllerSource()/judge.NewSource()/'
} > "$folder/controller_test.go"
# The program of client-go's examples/workqueue, with another queue and another ListerWatcher in main. What it prints goes to the test.
workqueue_example() { # MODULE FOLDER
    sed -e 's/^package .*/package judged/' -e '/^\t"flag"$/d; /^\t"k8s.io.*\/\(fields\|kubernetes\|clientcmd\)"$/d' -e 's/fmt\.Printf(/printed(/' \
        -e 's/\bController\b/PodController/g; s/cache\.PodController/cache.Controller/g' \
        -e '/^\tvar kubeconfig string$/,/^\tpodListWatcher := /d' -e '/^\tqueue := /d; /^\tstop := /d; /^\tdefer close(stop)$/d; s/^\tselect {}$/\t<-stop/' \
        -e 's/^func main() {/func run(podListWatcher cache.ListerWatcher, queue workqueue.TypedRateLimitingInterface[string], stop chan struct{}) {/' \
        "$1/examples/workqueue/main.go" > "$2/example.go"
    cat > "$2/example_test.go" << END
package judged

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"$judge"
)

func TestWorkqueueExample(t *testing.T) {
	source := judge.NewSource()
	source.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	stop := make(chan struct{})
	defer close(stop)
	go run(source, judge.NewStrings(), stop)
	missing := map[string]bool{"Sync/Add/Update for Pod web\n": true, "Pod default/mypod does not exist anymore\n": true}
	for len(missing) > 0 {
		delete(missing, <-lines)
	}
}
END
    cat > "$2/printed.go" << 'END'
package judged

import "fmt"

var lines = make(chan string, 100)

func printed(format string, arguments ...any) { lines <- fmt.Sprintf(format, arguments...) }
END
}

workqueue_example "$module" "$folder"
(
    cd "$folder"
    go mod tidy 2> tidy.log || { cat tidy.log >&2; exit 1; }
    go test -race -count=1 -v -skip '^TestGarbageCollection$' . > test.log 2>&1 || { grep -v '_test.go:.*Worker' test.log | tail -n 60 >&2; exit 1; }
    echo "client-go $version: $(grep -c '^--- PASS' test.log) tests and examples pass on queues of deltaq"
)
