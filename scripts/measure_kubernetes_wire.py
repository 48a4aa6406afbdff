#!/usr/bin/env python3
"""Measures informers of client-go at deltaq and at a real API server over etcd, on the same machine in the same run: the time until all have synced, the
bytes that they received, the CPU seconds and the peak memory of the servers. Prints a table in Markdown.

    scripts/measure_kubernetes_wire.py BINARY [INFORMERSxOBJECTS...] [--server deltaq|real] [--brief]      100x10000 5x100000

--brief leaves out lists without WatchList, and HTTP/1.1.

The figures of the API server are those of kube-apiserver and etcd together. Bytes are those of TCP, with TLS and compression. DELTAQ_KUBERNETES is the
folder of the programs that `scripts/kubernetes/apiserver.sh build` has made (target/kubernetes).
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts/kubernetes"), str(ROOT / "scripts/kubernetes/wire")]

from readers import Programs  # noqa: E402
from servers import Deltaq, Real, usage  # noqa: E402

SETTLE_SECONDS = 5


def totals(server):
    figures = [usage(pid) for pid in server.pids()]
    return sum(cpu for cpu, _ in figures), sum(peak for _, peak in figures)


def measure(server, programs, informers, objects, watch_list, port):
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig("kubeconfig", port)), "KUBE_FEATURE_WatchListClient": str(watch_list).lower()}
    for pid in server.pids():
        # The peak begins anew.
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
    before, idle = totals(server)
    command = [programs.go, f"-informers={informers}", f"-objects={objects}", "-namespace=shop", "measure"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the informers at {server.name} have ended")
        figures = json.loads(line)
        after, peak = totals(server)
    finally:
        process.kill()
        process.wait()
    figures |= {"cpu_s": after - before, "peak_mib": peak, "idle_mib": idle}
    return figures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("shapes", nargs="*", default=["100x10000", "5x100000"])
    parser.add_argument("--server", choices=["deltaq", "real"], action="append")
    parser.add_argument("--brief", action="store_true")
    options = parser.parse_args()
    binary = os.path.abspath(options.binary)
    # The end of the script ends the servers, also after a SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    target = ROOT / "target"
    programs = Programs(target / "kubernetes-wire")
    programs.build()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="measure-", dir=target / "kubernetes-wire"))
    built = pathlib.Path(os.environ.get("DELTAQ_KUBERNETES", target / "kubernetes")).resolve()
    rows = []
    makes = {"deltaq": lambda path: Deltaq(binary, path), "real": lambda path: Real(built, path)}
    for shape in options.shapes:
        for make in [makes[name] for name in options.server or makes]:
            informers, objects = map(int, shape.split("x"))
            own = pathlib.Path(tempfile.mkdtemp(dir=folder))
            server = make(own)
            try:
                server.start()
                loaded = time.monotonic()
                environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig("kubeconfig", server.port))}
                subprocess.run([programs.go, f"-objects={objects}", "load"], env=environment, check=True)
                loaded = time.monotonic() - loaded
                print(f"{server.name}: {objects} objects created in {loaded:.1f} s, 50 at once", file=sys.stderr, flush=True)
                time.sleep(SETTLE_SECONDS)
                for watch_list in (True,) if options.brief else (True, False):
                    ports = [("HTTP/1.1", server.port), ("HTTP/2", server.http2_port)] if server.name == "deltaq" else [("HTTP/2", server.port)]
                    for _, port in ports[-1:] if options.brief else ports:
                        figures = measure(server, programs, informers, objects, watch_list, port)
                        name = "deltaq" if server.name == "deltaq" else "kube-apiserver + etcd"
                        rows.append(
                            f"| {informers} x {objects:,} | {'WatchList' if watch_list else 'list, then watch'} | {name} | {figures['protocol']} | "
                            f"{figures['first_s']:.2f} | {figures['last_s']:.2f} | {figures['received_bytes'] / 1e6:,.0f} | {figures['cpu_s']:.1f} | "
                            f"{figures['idle_mib']:.0f} | {figures['peak_mib']:.0f} |"
                        )
                        print(rows[-1], file=sys.stderr, flush=True)
                        time.sleep(SETTLE_SECONDS)
            finally:
                server.stop()
    print("| informers x objects | client-go | server | protocol | first synced, s | all synced, s | received, MB | server CPU, s | memory before, MiB | peak memory, MiB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(rows))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
