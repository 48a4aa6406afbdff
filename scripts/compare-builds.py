#!/usr/bin/env python3
"""Compares the speed of two builds of deltaq in alternating runs, and prints the median of the ratios.

    scripts/compare-builds.py OLD NEW [--turns 7] [--seconds 2] [--rows add,cycle,...]

OLD and NEW are deltaq binaries. Each turn starts a fresh server of one build, then of the other, and loads both with
the same load generator (`OLD bench`). A ratio of 1.05 means that NEW handled 5 % more objects per second than OLD in
that turn. For hand-off the ratio compares median latencies, and 1.05 means that NEW was 5 % faster. The order of the
two builds alternates from turn to turn.
"""
import argparse, json, os, shutil, signal, statistics, subprocess, sys, tempfile, time

ROWS = {
    # name: (arguments of `deltaq bench`, with journal)
    "add": ("add", False),
    "cycle": ("add-pop-ack", False),
    "fsync-cycle": ("add-pop-ack", True),
    "batch": ("add-pop --batch 100", False),
    "fsync-batch": ("add-pop --batch 100", True),
    "hand-off": ("hand-off --connections 4", False),
}


def serve(binary, folder, journal):
    ready = os.path.join(folder, "ready")
    arguments = ["--data-dir", os.path.join(folder, "data")] if journal else ["--in-memory"]
    command = [binary, "serve", "--listen", "127.0.0.1:0", "--metrics-listen=", "--log-level", "warn", "--ready-file", ready]
    server = subprocess.Popen(command + arguments, stderr=subprocess.DEVNULL)
    for _ in range(200):
        if os.path.exists(ready):
            with open(ready) as file:
                return server, "http://" + json.load(file)["api"]
        if server.poll() is not None:
            sys.exit(f"{binary} did not start")
        time.sleep(0.05)
    server.kill()
    sys.exit(f"{binary} was not ready after 10 s")


def measure(binary, load, row, seconds):
    arguments, journal = ROWS[row]
    folder = tempfile.mkdtemp(prefix="compare-builds-", dir=os.environ.get("TMPDIR"))
    server, url = serve(binary, folder, journal)
    try:
        command = [load, "bench", "--url", url, "--json", "--warm-up", "1s", "--duration", f"{seconds}s"] + arguments.split()
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)
    return 1e6 / report["latency_us"]["p50"] if row == "hand-off" else report["objects_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rows", default=",".join(ROWS))
    options = parser.parse_args()
    print(f"{'row':12} {'old':>12} {'new':>12} {'ratio':>6}  quartiles   ({options.turns} turns of {options.seconds} s)")
    for row in options.rows.split(","):
        old, new = [], []
        for turn in range(options.turns):
            for binary, results in [(options.old, old), (options.new, new)][:: 1 if turn % 2 == 0 else -1]:
                results.append(measure(binary, options.old, row, options.seconds))
        ratios = sorted(b / a for a, b in zip(old, new))
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        print(
            f"{row:12} {statistics.median(old):12,.0f} {statistics.median(new):12,.0f} "
            f"{statistics.median(ratios):6.2f}  {low:.2f}..{high:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
