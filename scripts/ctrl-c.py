#!/usr/bin/env python3
"""Presses Ctrl-C in a terminal whose only program is a server, with pipes as its input and outputs, while a key is leased.

    scripts/ctrl-c.py COMMAND...

The server must wait for the key, at most its `server.shutdown_timeout`. A second INT would end it at once.
"""

import json
import os
import pty
import subprocess
import sys
import tempfile
import time
import urllib.request

PATIENCE_SECONDS = 30
DRAIN_SECONDS = 3


def post(url: str, body: object) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).read()


def main() -> None:
    ready = os.path.join(tempfile.mkdtemp(), "ready")
    options = ["serve", "--in-memory", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--ready-file", ready, "--log-level", "warn"]
    child, terminal = pty.fork()
    if child == 0:
        environment = {**os.environ, "DELTAQ_SERVER__SHUTDOWN_TIMEOUT": f"{DRAIN_SECONDS}s"}
        pipes = subprocess.Popen([*sys.argv[1:], *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        # Like every tool that only waits, this process survives the INT.
        while pipes.poll() is None:
            try:
                pipes.wait()
            except KeyboardInterrupt:
                pass
        os._exit(0)
    end = time.monotonic() + PATIENCE_SECONDS
    while not os.path.exists(ready):
        if time.monotonic() > end:
            sys.exit("the server is not ready")
        time.sleep(0.02)
    with open(ready) as file:
        url = f"http://{json.load(file)['api']}/v1/queues/q"
    post(f"{url}/add", {"key": "a"})
    post(f"{url}/pop", {})
    begin = time.monotonic()
    os.write(terminal, b"\x03")
    os.waitpid(child, 0)
    waited = time.monotonic() - begin
    if waited < DRAIN_SECONDS * 0.8:
        sys.exit(f"the server has ended after {waited:.1f} s")
    if waited > PATIENCE_SECONDS:
        sys.exit(f"the server has ended only after {waited:.1f} s")


if __name__ == "__main__":
    main()
