#!/usr/bin/env python3
"""Rotates the tokens of workers and of a reflector under load, as docs/deployment.md says. Each program has a token and a queue of its own:
`deltaq work`, `deltaq reflect`, and the workers of the Rust, Python, asyncio, TypeScript and Go clients. `deltaq token rotate --keep-old` replaces
every token several times, and the program's file gets the new one while the server still accepts the old one.

    scripts/judge_rotation.py BINARY [SECONDS]

Fails if a change is not handled, is handled twice, or fails once; if a program ends or writes an error; or if a queue differs from its source."""
from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/clients"))
from run import CLIENTS  # noqa: E402

from target import Target  # noqa: E402

KEYS = 20
ROTATIONS = 5
KEPT = 8.0  # Seconds for which a replaced token is accepted.


class World:
    def __init__(self, binary: str, folder: Path) -> None:
        self.binary, self.folder, self.processes = binary, folder, {}
        self.tokens = folder / "tokens.toml"
        self.admin = self.token("admin", "--verbs", "admin,produce,consume,read", "--queues", "*")
        for name in ["work", "reflect", *CLIENTS]:
            self.give(name, self.token(name, "--verbs", "produce,consume,read", "--queues", name))
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
        ready = folder / "ready"
        self.start("serve", [binary, "serve", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-level", "warn",
                             "--data-dir", str(folder / "data"), "--ready-file", str(ready)],
                   DELTAQ_ACCESS__TOKENS_FILE=str(self.tokens))
        self.wait("the server is ready", ready.exists)
        self.address = json.loads(ready.read_text())["api"].removeprefix("http://")

    def token(self, *words: str) -> str:
        return subprocess.run([self.binary, "token", *words, "--file", str(self.tokens)], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def give(self, name: str, token: str) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(token + "\n")
        new.chmod(0o600)
        new.rename(self.folder / f"{name}.token")

    def start(self, name: str, command: list[str], **environment: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self.environment | environment)

    def wait(self, what: str, condition, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                logs = "".join(f"--- {name}\n{self.log(name)[-1500:]}\n" for name in self.processes)
                raise SystemExit(f"after {seconds:g} s still not: {what}\n{logs}")
            time.sleep(0.05)

    def call(self, method: str, path: str, body: object = None) -> dict:
        connection = HTTPConnection(self.address, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"authorization": f"Bearer {self.admin}", "content-type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        if reply.status >= 300:
            raise SystemExit(f"{method} {path}: {reply.status} {text.decode()}")
        return json.loads(text)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")


def main() -> None:
    binary, seconds = os.path.abspath(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory(prefix="deltaq-rotation-") as path:
        world = World(binary, Path(path))
        targets = {name: Target() for name in CLIENTS}
        try:
            judge(world, targets, seconds)
        finally:
            for process in world.processes.values():
                process.kill()
                process.wait()
            for target in targets.values():
                target.close()


def judge(world: World, targets: dict[str, Target], seconds: float) -> None:
    url, source = f"http://{world.address}", world.folder / "files"
    source.mkdir()
    workers = ["work", *CLIENTS]
    for name in [*workers, "reflect"]:
        world.call("PUT", f"/v1/queues/{name}", {})
    handled = world.folder / "handled"
    world.start("work", [world.binary, "work", "work", "--url", url, "--token-file", str(world.folder / "work.token"), "--concurrency", "4",
                         "--", "sh", "-c", f"cat >> {handled}; echo >> {handled}"])
    world.start("reflect", [world.binary, "reflect", "reflect", "--url", url, "--token-file", str(world.folder / "reflect.token"), "--source", "files",
                            "--files", str(source), "--interval", "500ms"])
    for name, (command, environment) in CLIENTS.items():
        world.start(name, [*command, "worker"], **environment, DELTAQ_URL=url, DELTAQ_QUEUE=name, TARGET_URL=targets[name].url, WORKER_NAME=name,
                    CONCURRENCY="4", BATCH="10", DELTAQ_TOKEN_FILE=str(world.folder / f"{name}.token"))

    begun, version, rotated, giving = time.monotonic(), 0, 0, []
    while (now := time.monotonic() - begun) < seconds:
        version += 1
        for name in workers:
            world.call("POST", f"/v1/queues/{name}/update", [{"key": f"k{n}", "version": version} for n in range(KEYS)])
        write(source / "objects.json", [{"key": f"k{n}", "version": version} for n in range(KEYS)])
        if rotated < ROTATIONS and now > (rotated + 0.5) * seconds / ROTATIONS:
            rotated += 1
            for name in [*workers, "reflect"]:
                token = world.token("rotate", name, "--keep-old", f"{KEPT:g}s")
                giving.append(threading.Timer(random.uniform(0, KEPT / 2), world.give, (name, token)))
                giving[-1].start()
        time.sleep(0.25)
    for timer in giving:
        timer.join()

    expected = {f"k{n}": {"key": f"k{n}", "version": version} for n in range(KEYS)}

    def known(name: str, view: str) -> dict:
        return {item["key"]: item["object"] for item in world.call("GET", f"/v1/queues/{name}/{view}")["items"]}

    for name in workers:
        world.wait(f"the worker {name} has handled everything", lambda name=name: known(name, "known") == expected)
    world.wait("the queue of the reflector equals its source", lambda: known("reflect", "latest") == expected)
    faults = [fault for target in targets.values() for fault in target.faults]
    for name in [*workers, "reflect"]:
        process = world.processes[name]
        if process.poll() is not None:
            faults.append(f"{name} has ended with {process.returncode}")
        counters = world.call("GET", f"/v1/queues/{name}/status")
        faults += [f"{name}: {counters[what]} keys are {what}" for what in ("parked", "delayed") if counters[what]]
        process.send_signal(signal.SIGTERM)
        if process.wait(60):
            faults.append(f"{name} ended with {process.returncode} after SIGTERM")
        errors = re.findall(r"^.*\b(?:error|401|unauthorized)\b.*$", world.log(name), re.M | re.I)
        faults += [f"{name} wrote: {line}" for line in errors[:3]]
    refused = sum('"unauthorized"' in line and '"audit"' in line for line in world.log("serve").splitlines())
    attempts = max(work.attempt for target in targets.values() for work in target.starts)
    writes = sum(len(target.writes) for target in targets.values())
    print(f"{rotated} rotations of {len(workers) + 1} tokens in {seconds:g} s; {version * KEYS * len(workers)} updates, {writes} written by the "
          f"clients; {refused} calls had a refused token and were repeated with the new one; most attempts of a key: {attempts}")
    if attempts > 1:
        faults.append(f"a key needed {attempts} attempts")
    print("\n".join(["FAILED", *faults]) if faults else "held")
    sys.exit(bool(faults))


def write(path: Path, value: object) -> None:
    new = path.with_name(".new")
    new.write_text(json.dumps(value))
    new.rename(path)


main()
