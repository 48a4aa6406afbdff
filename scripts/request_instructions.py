#!/usr/bin/env python3
"""Counts the instructions of a whole request outside the kernel with callgrind, by part of the program. Needs valgrind.

    scripts/request_instructions.py [BINARY]   prints the table of docs/benchmarks.md; default: target/dist/deltaq

Two runs differ by about 1 %, and so do two machines with the same libc. Functions that the compiler has inlined count
for the function that contains them, so a part may have a few of its neighbour's instructions."""
import json, os, re, signal, subprocess, sys, tempfile

SCENARIOS = {"add": 1, "add-pop": 2}
PARTS = [
    ("HTTP: hyper, axum, http", "hyper|hyper_util|http|httparse|http_body|http_body_util|httpdate|axum|axum_core|tower|bytes|percent_encoding|matchit"),
    ("tokio", "tokio|tokio_util|futures_util|futures_core|mio"),
    ("JSON: serde_json, jiter", "serde_json|serde_core|serde|jiter|itoa|ryu|memchr|simdutf8"),
    ("deltaq: HTTP", "deltaq"),
    ("deltaq: types, clock", "deltaq_types|deltaq_runtime"),
    ("deltaq: service", "deltaq_service"),
    ("deltaq: journal", "deltaq_journal"),
    ("deltaq: engine", "deltaq_engine"),
    ("metrics", "metrics|metrics_util|metrics_exporter_prometheus"),
]
CRATE = re.compile(r"\b(" + "|".join(crates for _, crates in PARTS) + r")::")
ALLOCATOR = re.compile(r"(_?mi_|free$|malloc|realloc|calloc|operator )")
REST = "the rest: standard library, locks, hashes"


def part(function, obj):
    if "libc" in obj:
        return "libc: copies, comparisons, clock"
    if ALLOCATOR.match(function):
        return "allocator"
    crate = CRATE.search(function)
    if not crate:
        return REST
    return next(name for name, crates in PARTS if crate.group(1) in crates.split("|"))


def by_part(lines):
    """The instructions of each part in a file of callgrind. The line after `calls=` has those of the called function, which has lines of its own."""
    names, obj, function, is_call, totals = {}, "", "", False, {}
    for line in lines:
        name = re.match(r"(ob|cob|fn|cfn)=\((\d+)\)(?: (.*))?", line)
        if name:
            kind, number, text = name.groups()
            known = names.setdefault(kind[-2:] + number, (text or "").strip())
            if kind == "ob":
                obj = os.path.basename(known)
            elif kind == "fn":
                function = known
        elif line.startswith("calls="):
            is_call = True
        elif re.match(r"[\d+*-]", line):
            if not is_call:
                key = part(function, obj)
                totals[key] = totals.get(key, 0) + int(line.split()[1])
            is_call = False
    return totals


def count(binary, scenario, folder):
    """The instructions of each part for one repetition of a scenario."""
    out, ready = os.path.join(folder, f"{scenario}.out"), os.path.join(folder, f"{scenario}.ready")
    server = subprocess.Popen(
        ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", binary, "serve",
         "--listen", "127.0.0.1:0", "--metrics-listen=", "--log-level", "warn", "--in-memory", "--ready-file", ready], stderr=subprocess.DEVNULL)
    try:
        while not os.path.exists(ready) or not os.path.getsize(ready):
            if server.poll() is not None:
                sys.exit(f"{binary} did not start under valgrind")
        with open(ready) as file:
            url = "http://" + json.load(file)["api"]

        def bench(seconds):
            command = [binary, "bench", scenario, "--url", url, "-c", "4", "--warm-up", "0s", "--duration", f"{seconds}s", "--json"]
            return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])["requests"]

        bench(3)
        for change in (["-i", "on"], ["-z"]):
            subprocess.run(["callgrind_control", *change, str(server.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        repetitions = bench(15) / SCENARIOS[scenario]
        server.send_signal(signal.SIGTERM)
        server.wait()
    finally:
        server.kill()
    with open(out) as lines:
        return {name: total / repetitions for name, total in by_part(lines).items()}


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    binary = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/dist/deltaq")
    with tempfile.TemporaryDirectory() as folder:
        found = {scenario: count(binary, scenario, folder) for scenario in SCENARIOS}
    names = sorted({name for parts in found.values() for name in parts}, key=lambda name: -found["add"].get(name, 0))
    print("| part | add | add, and pop with ack |\n|---|---|---|")
    for name in names:
        print(f"| {name} | " + " | ".join(f"{found[scenario].get(name, 0):,.0f}" for scenario in SCENARIOS) + " |")
    print("| **all** | " + " | ".join(f"{sum(found[scenario].values()):,.0f}" for scenario in SCENARIOS) + " |")


main()
