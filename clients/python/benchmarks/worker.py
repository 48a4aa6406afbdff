#!/usr/bin/env python3
"""Measures what the worker costs beside raw HTTP: worker.py --server PATH [--items 10000].

Each run works on the same number of keys of a server in memory, with a handler that does nothing. "raw" is a loop on http.client and json alone, which pops
with the settles of the pop before, as docs/worker.md says, without retries, extends and threads. On a busy machine only the CPU time of the
client says something.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deltaq import Client, Worker

# Keys of one call that produces.
PRODUCE_MAX = 10_000


def raw(port: int, queue: str, batch: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    settle: list[dict[str, str]] = []
    while True:
        body = json.dumps({"settle": settle})
        connection.request("POST", f"/v1/queues/{queue}/pop?max={batch}", body, {"content-type": "application/json"})
        reply = connection.getresponse()
        fields = json.loads(reply.read())
        if reply.status == 410:
            connection.close()
            return
        settle = [{"lease_id": item["lease"]["id"], "as": "ack"} for item in fields["items"]]


def threads(port: int, queue: str, batch: int) -> None:
    with Client(f"http://127.0.0.1:{port}") as client:
        Worker(client.queue(queue), lambda item, context: None, batch=batch).run()


def measure(port: int, name: str, run: Callable[[int, str, int], None], items: int, batch: int) -> tuple[float, float]:
    """Items per second, and microseconds of CPU time of this process per item."""
    with Client(f"http://127.0.0.1:{port}") as client:
        queue = client.queue(f"{name}-{batch}")
        for first in range(0, items, PRODUCE_MAX):
            queue.add([{"key": f"k{number}", "price": number} for number in range(first, min(first + PRODUCE_MAX, items))])
        queue.close()
        began, cpu_began = time.perf_counter(), time.process_time()
        run(port, queue.name, batch)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu_began
        if len(queue.known(limit=1).items) != 1 or queue.status().known != items:
            sys.exit(f"{name}: not all items were acknowledged")
        queue.delete_queue()
    return items / seconds, cpu_seconds / items * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--items", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder, "ready")
        command = [options.server, "serve", "--in-memory", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-level", "error"]
        server = subprocess.Popen([*command, "--ready-file", str(ready)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                if server.poll() is not None:
                    sys.exit("the server did not start")
                time.sleep(0.05)
            port = int(json.loads(ready.read_text())["api"].rsplit(":", 1)[1])
            print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.items} items")
            print("batch  raw/s  worker/s  ratio  raw CPU us  worker CPU us")
            for batch in (1, 10, 100):
                base, base_cpu = measure(port, "raw", raw, options.items, batch)
                rate, cpu = measure(port, "worker", threads, options.items, batch)
                print(f"{batch:5} {base:6.0f} {rate:9.0f} {rate / base:6.2f} {base_cpu:11.0f} {cpu:14.0f}", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
