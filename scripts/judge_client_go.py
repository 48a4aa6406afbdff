#!/usr/bin/env python3
"""Runs tests and examples of client-go, of the version that clients/go/clientgo requires, on queues of deltaq.

    scripts/judge_client_go.py [--all]

The files are read from the module cache. The compiler sees them, with other constructors of queues, sources and clocks, as tests of
clients/go/clientgo/internal/judge, with the race detector. The table in clients/go/clientgo/README.md has the tests that fail, with their messages, and
those that are left out: each difference from the table is an error. With --all, the tests of delaying queues run, too: their delays take a minute, and
calls must be shorter than them. DELTAQ_BIN is the server."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADAPTER = ROOT / "clients/go/clientgo"
JUDGE = ADAPTER / "internal/judge"
IMPORT = '"example.com/deltaq/clients/go/clientgo/internal/judge"'

# What is replaced in a test file of client-go, so that it is one of the package judge_test. Each pattern must occur.
PACKAGE = [(r"^package \w+$", "package judge_test")]
WORKQUEUE = [
    *PACKAGE,
    (r'^\t"k8s.io/client-go/util/workqueue"$', rf"\g<0>\n\n\t{IMPORT}"),
    (r"\*workqueue\.Type\b", "*judge.Queue"),
    (r"\bworkqueue\.(New|NewWithConfig)\(", r"judge.\1("),
]
DELAYING = [
    *PACKAGE,
    (r"^\ttestingclock .*$", f"\t{IMPORT}"),
    (r'^\t"math/rand"\n', ""),
    (r"(?s)^func Benchmark.*?^}\n", ""),
    (r"testingclock\.NewFakeClock\(time\.Now\(\)\)", "judge.NewClock()"),
    (r"NewDelayingQueueWithConfig\(.*\)$", "judge.New()"),
    (r"q DelayingInterface\b", "q *judge.Queue"),
    (r"len\(q\.\(.*\)\.waitingForAddCh\) == 0", "q.Len() >= 0"),
    (r"^func Test\w+\(t \*testing\.T\) {$", "\\g<0>\n\tt.Parallel()"),
    (r"\b10\*time\.Second, func\b", "time.Minute, func"),
]
LIMITERS = [
    *PACKAGE,
    (r"(?s)^func TestWithMaxWaitRateLimiter\(.*\Z", ""),
    (r'^import \($', f"import (\n\t{IMPORT}"),
    # After a hundred failures the wait overflows, too. The history takes longer for more.
    (r"\bi < 1000\b", "i < 100"),
    (r"\bNew(ItemExponentialFailure|ItemFastSlow|MaxOf)RateLimiter\(", "judge.\\g<0>"),
]
FIFO = [
    *PACKAGE,
    (r"^import \($", f'import (\n\t. "k8s.io/client-go/tools/cache"\n\n\t{IMPORT}\n'),
    (r"\.items\b", ".Items()"),
    (r"\btime\.After\(500 \* time\.Millisecond\)", "time.After(time.Minute)"),
    (r"\*FIFO\b", "*judge.FIFO"),
    (r"\bNewFIFO\(", "judge.NewFIFO("),
]
DELTA_FIFO = [
    *FIFO[:4],
    (r"(?s)^func TestDeltaFIFO_KeyOf\(.*?^}\n", ""),
    (r"\*DeltaFIFO\b", "*judge.DeltaFIFO"),
    (r"\bNewDeltaFIFOWithOptions\(", "judge.NewDeltaFIFOWithOptions("),
    (r"\bf\.queue\b", "f.ListKeys()"),
    (r"\bf\.emitDeltaTypeReplaced = true$", "f.EmitReplaced()"),
]
CONTROLLER = [
    *PACKAGE,
    FIFO[1],
    (r'^\tfcache ".*\n|^\tfuzz ".*\n|^\t"math/rand"\n', ""),
    (r"(?s)^type testLW struct .*?^}\n|^func \(t \*testLW\).*?^}\n|^func Test(HammerController|Update)\(.*?^}\n", ""),
    (r"\bfcache\.NewFakeControllerSource\(\)", "judge.NewSource()"),
]
# The program of examples/workqueue, with another queue and another ListerWatcher in main. What it prints goes to the test.
PROGRAM = [
    *PACKAGE,
    (r'^\t"flag"\n|^\t"k8s.io.*/(fields|kubernetes|clientcmd)"\n', ""),
    (r"\bfmt\.Printf\(", "printed("),
    (r"(?<!cache\.)\bController\b", "PodController"),
    (r"(?s)^\tvar kubeconfig string$.*?^\tpodListWatcher := .*?\n", ""),
    (r"^\tqueue := .*\n|^\tstop := .*\n|^\tdefer close\(stop\)\n", ""),
    (r"^\tselect {}$", "\t<-stop"),
    (
        r"^func main\(\) {$",
        "func run(podListWatcher cache.ListerWatcher, queue workqueue.TypedRateLimitingInterface[string], stop chan struct{}) {",
    ),
]
SLOW = "util/workqueue/delaying_queue_test.go"
FILES = {
    "util/workqueue/queue_test.go": WORKQUEUE,
    SLOW: DELAYING,
    "util/workqueue/default_rate_limiters_test.go": LIMITERS,
    "tools/cache/delta_fifo_test.go": DELTA_FIFO,
    "tools/cache/fifo_test.go": FIFO,
    "tools/cache/controller_test.go": CONTROLLER,
    "examples/workqueue/main.go": PROGRAM,
}
# Files with tests that are all in the table, because they are left out.
LEFT_OUT = [
    "util/workqueue/metrics_test.go",
    "util/workqueue/parallelizer_test.go",
    "util/workqueue/rate_limiting_queue_test.go",
]

MAIN = f"""package judge_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	{IMPORT}
)

func TestMain(m *testing.M) {{ judge.Main(m) }}

var lines = make(chan string, 100)

func printed(format string, arguments ...any) {{ lines <- fmt.Sprintf(format, arguments...) }}

func TestWorkqueueExample(t *testing.T) {{
	source := judge.NewSource()
	source.Add(&v1.Pod{{ObjectMeta: metav1.ObjectMeta{{Namespace: "default", Name: "web"}}}})
	stop := make(chan struct{{}})
	defer close(stop)
	go run(source, judge.NewStrings(), stop)
	missing := map[string]bool{{"Sync/Add/Update for Pod web\\n": true, "Pod default/mypod does not exist anymore\\n": true}}
	for len(missing) > 0 {{
		delete(missing, <-lines)
	}}
}}
"""


def main():
    # Nothing changes go.mod: the versions are those that it has.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    environment["DELTAQ_BIN"] = str(Path(environment.get("DELTAQ_BIN", ROOT / "target/debug/deltaq")).resolve())
    download = ["go", "mod", "download", "-json", "k8s.io/client-go"]
    module = json.loads(subprocess.run(download, cwd=ADAPTER, env=environment, check=True, stdout=subprocess.PIPE).stdout)
    failing, left_out = table((ADAPTER / "README.md").read_text())
    (ROOT / "target").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "target", prefix="judge_client_go.") as folder:
        names = write(Path(module["Dir"]), Path(folder))
        slow = set() if "--all" in sys.argv[1:] else tests((Path(module["Dir"]) / SLOW).read_text())
        skipped = "^(" + "|".join(sorted(left_out | slow)) + ")$"
        options = ["-race", "-count=1", "-parallel=8", "-json", f"-overlay={folder}/overlay.json", f"-skip={skipped}"]
        command = ["go", "test", *options, "./internal/judge"]
        run = subprocess.run(command, check=False, cwd=ADAPTER, env=environment, stdout=subprocess.PIPE, text=True)
    passed, failed, unfinished, log = results(run.stdout)
    if not passed or unfinished:
        problems = ["".join(log[-60:]) + "the tests did not run to their end"]
    else:
        problems = differences(names - slow, passed, failed, failing, left_out)
    if problems:
        sys.exit("\n".join(problems))
    print(
        f"client-go {module['Version']}: {len(passed)} tests and examples pass on queues of deltaq, "
        f"{len(failing)} fail as the table says, and {len(left_out)} are left out"
    )


def write(module, folder):
    """Writes the files of the tests, and overlay.json, with which the compiler reads them. Returns the names of all tests of client-go's files."""
    texts = {"main": MAIN}
    names = set()
    for name, replacements in FILES.items():
        text = (module / name).read_text()
        names |= tests(text)
        for pattern, replacement in replacements:
            text, count = re.subn(pattern, replacement, text, flags=re.MULTILINE)
            if count == 0:
                sys.exit(f"{name} of client-go has nothing like {pattern}")
        texts[name.replace("/", "_").removesuffix(".go").removesuffix("_test")] = text
    for name in LEFT_OUT:
        names |= tests((module / name).read_text())
    overlay = {}
    for name, text in texts.items():
        (folder / f"{name}_test.go").write_text(text)
        overlay[str(JUDGE / f"{name}_test.go")] = str(folder / f"{name}_test.go")
    (folder / "overlay.json").write_text(json.dumps({"Replace": overlay}))
    return names


def tests(text):
    return set(re.findall(r"(?m)^func (Test\w+)\(", text)) - {"TestMain"}


def table(readme):
    """The tests that fail, each with its messages, and those that are left out."""
    failing, left_out = {}, set()
    for line in readme.split("\n## Tests of client-go\n")[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != 3 or not cells[0].startswith("`"):
            continue
        names = re.findall(r"`(\w+)`", cells[0])
        if cells[1] == "left out":
            left_out |= set(names)
        else:
            failing |= {name: re.findall(r"`([^`]+)`", cells[1]) for name in names}
    return failing, left_out


def results(text):
    """The tests that pass, those that fail with the lines in which they say so, those that have begun but not ended, and the whole log."""
    passed, failed, unfinished, said, log = set(), {}, set(), {}, []
    for line in text.splitlines():
        event = json.loads(line)
        # The output of a subtest is that of its test.
        name = event.get("Test", "").split("/")[0]
        if event["Action"] in ("output", "build-output"):
            log.append(event["Output"])
            said.setdefault(name, []).append(event["Output"])
        if name != event.get("Test"):
            continue
        if event["Action"] == "run":
            unfinished.add(name)
        elif event["Action"] == "pass":
            passed.add(name)
        elif event["Action"] == "fail":
            failed[name] = [output for output in said.get(name, []) if re.match(r"\s+\w+\.go:\d+: ", output)]
    return passed, failed, unfinished - passed - failed.keys(), log


def differences(names, passed, failed, failing, left_out):
    """How the results differ from the table."""
    problems = [f"{name} is left out, but is no test of client-go" for name in left_out - names]
    problems += [f"{name} is left out, but has run" for name in left_out & (passed | failed.keys())]
    problems += [f"{name} has neither run, nor is it left out" for name in names - left_out - passed - failed.keys()]
    problems += [f"{name} passes, but the table says that it fails" for name in failing.keys() & passed]
    problems += [f"{name} is said to fail, but has not run" for name in failing.keys() - passed - failed.keys()]
    problems += [f"{name} fails, but the table does not say so:\n{''.join(failed[name])}" for name in failed.keys() - failing.keys()]
    for name in failing.keys() & failed.keys():
        problems += [f"{name} does not say {message!r}" for message in failing[name] if not any(message in line for line in failed[name])]
        problems += [f"{name} also says {line.strip()!r}" for line in failed[name] if not any(message in line for message in failing[name])]
    return sorted(problems)


if __name__ == "__main__":
    main()
