#!/usr/bin/env python3
"""Judges the Kubernetes wire by unmodified clients: client-go, controller-runtime, kube-rs, the Python libraries, @kubernetes/client-node and kubectl.
Each reader keeps a store while random histories change two queues, over the queue's API and over the wire. After each history every store must equal
`GET /v1/queues/{queue}/latest`, and no handler may have been notified of a deletion that it can't know.

    scripts/judge_kubernetes_wire.py BINARY [--server deltaq|real] [--histories N] [--seed N] [--only calls|kubectl|pages|histories] [--reader REGEX]

Some histories have a disturbance: kill -9 during the initial events, a cut connection, a revoked token, versions that the tombstones no longer reach, a
restored backup, a queue that is deleted and created again. With `--server real`, the same clients read a real API server without disturbances, which
judges the judge: BINARY is not used then. DELTAQ_KUBERNETES is the folder of the programs that `scripts/kubernetes/apiserver.sh build` has made
(target/kubernetes). The clients are built in target/kubernetes-wire. All is on loopback, and ends with the script.
"""
import argparse
import atexit
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts/kubernetes"), str(ROOT / "scripts/kubernetes/wire")]

from cluster import Proxy, until  # noqa: E402
from kubectl import judge_kubectl  # noqa: E402
from readers import Programs, Reader, compared, converge, difference, random_object  # noqa: E402
from servers import RESOURCES, Deltaq, Real  # noqa: E402

# The stores of a history must be right within this time. After faults, client-go and kube-rs wait for up to 30 s before they try again.
CONVERGE_SECONDS = 75
KEYS = {"prices": [f"{namespace}/n{number}" for namespace in ("shop", "other") for number in range(60)], "rates": [f"r{number}" for number in range(40)]}
TOMBSTONES = 200
BULK = 3_000
PAGED = 100_000


class Judge:
    def __init__(self, server, programs, folder, options):
        self.server, self.programs, self.folder, self.options = server, programs, folder, options
        self.problems, self.readers, self.dice = [], [], random.Random(options.seed)
        self.proxies = [Proxy(server.port), Proxy(server.http2_port)]
        self.token = server.reader if server.name == "deltaq" else server.connection.token
        self.token_file = folder / "token"
        self.token_file.write_text(self.token)

    def fails(self, what, problems):
        for problem in problems:
            self.problems.append(f"{what}: {problem}")
            print(f"    FAILED {what}: {problem}", flush=True)

    def kubeconfig(self, number, by_file=False):
        name = f"kubeconfig-{number}{'-file' if by_file else ''}"
        return self.server.kubeconfig(name, self.proxies[number].port, self.token, self.token_file if by_file else None)

    # --- Calls

    def calls(self):
        for name, command in self.programs.calls().items():
            for resource in RESOURCES:
                flags = [f"-resource={resource}", f"-server={self.server.name}"] if name == "client-go" else []
                environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig(0)), "WIRE_RESOURCE": resource}
                run = subprocess.run([command[0], *flags, *command[1:]], env=environment, capture_output=True, text=True, timeout=240, check=False)
                found = [line for line in run.stdout.splitlines() if not line.endswith("0 faults")] if run.returncode == 0 else run.stdout.splitlines()
                if run.returncode != 0:
                    found = [line for line in found if " faults" not in line] or []
                    found += [" ".join(run.stderr.split())[-600:]] if run.stderr and (not found or "panic" in run.stderr or "Traceback" in run.stderr) else []
                print(f"calls {name}, {resource}: {'ok' if run.returncode == 0 else f'{len(found)} faults'}", flush=True)
                self.fails(f"calls {name}, {resource}", found)

    # --- Histories

    def start_readers(self):
        for number, (name, kind) in enumerate(self.programs.kinds().items()):
            if self.options.reader and not re.search(self.options.reader, name):
                continue
            by_file = kind.reads_token_file
            # Half of the clients that speak HTTP/2 use the listener for it.
            port = number % 2 if kind.speaks_http2 else 0
            log = self.folder / f"{''.join(letter if letter.isalnum() else '-' for letter in name)}.log"
            self.readers.append(Reader(name, kind, self.kubeconfig(port, by_file), log))
            self.readers[-1].start()
            atexit.register(self.readers[-1].stop)

    def expected(self):
        lists = {}

        def of(kind):
            key = (kind.resource, kind.selector)
            if key not in lists:
                query = "?labelSelector=" + kind.selector.replace(" ", "%20") if kind.selector else ""
                lists[key] = self.server.objects(kind.resource, query)
            return lists[key]

        return of

    def change(self, dice, counts):
        """A random change, over the queue's API or the wire. Refusals count as well: the server decides."""
        resource = dice.choice(["prices", "prices", "rates"])
        key = dice.choice(KEYS[resource])
        path, found, kind = self.server.path(resource, key), random_object(dice, resource, key), "application/json"
        queue = f"/v1/queues/{resource}"
        ways = ["create", "put", "merge", "json", "remove", "blind-remove"]
        if self.server.name == "deltaq":
            ways += ["add", "update", "update", "delete", "several", "pop"]
        way = dice.choice(ways)
        if way == "create":
            status, reply = self.server.call("POST", self.server.path(resource, None, found["metadata"].get("namespace")), found)
        elif way == "put":
            status, reply = self.server.call("GET", path)
            if status == 200:
                found["metadata"]["resourceVersion"] = reply["metadata"]["resourceVersion"]
                status, reply = self.server.call("PUT", path, found)
        elif way == "merge":
            change = {"spec": {"eur": dice.randrange(100), "half": None}, "metadata": {"labels": {"tier": dice.choice(["a", "b", "c", None])}}}
            status, reply = self.server.call("PATCH", path, change, "application/merge-patch+json")
        elif way == "json":
            operations = [{"op": "add", "path": "/spec/patched", "value": dice.randrange(100)}]
            status, reply = self.server.call("PATCH", path, operations, "application/json-patch+json")
        elif way == "remove":
            status, reply = self.server.call("GET", path)
            if status == 200:
                conditions = {"preconditions": {"uid": reply["metadata"]["uid"], "resourceVersion": reply["metadata"]["resourceVersion"]}}
                status, reply = self.server.call("DELETE", path, conditions)
        elif way == "blind-remove":
            status, reply = self.server.call("DELETE", path)
        elif way == "delete":
            status, reply = self.server.call("POST", f"{queue}/delete?must_exist=true&key={key.replace('/', '%2F')}")
        elif way == "several":
            many = [random_object(dice, resource, key) for key in dice.sample(KEYS[resource], 8)]
            status, reply = self.server.call("POST", f"{queue}/update?must_exist=true", many)
        elif way == "pop":
            # A delivery that is acknowledged changes no object.
            status, reply = self.server.call("POST", f"{queue}/pop?max=3", {})
            settle = [{"lease_id": item["lease"]["id"], "as": "ack"} for item in reply["items"]] if status == 200 else []
            self.server.call("POST", f"{queue}/pop?max=1", {"settle": settle})
        else:
            # A queue that is deleted at the moment is not created again by an object.
            status, reply = self.server.call("POST", f"{queue}/{way}?must_exist=true", found)
        counts[f"{way} {status}"] = counts.get(f"{way} {status}", 0) + 1
        # 503: the server loads its queues.
        if status >= 500 and status != 503 or status in (400, 401, 403, 405, 415, 422) and way not in ("pop", "several"):
            self.fails("a change", [f"{way} of {key}: {status} {str(reply)[:300]}"])

    def changes(self, dice, number, counts):
        for _ in range(number):
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.change(dice, counts)
            if dice.random() < 0.1:
                time.sleep(dice.random() * 0.1)

    def restart_some(self, dice, number):
        for reader in dice.sample(self.readers, min(number, len(self.readers))):
            reader.start()

    def history(self, number, disturbance):
        dice, counts, began = random.Random(f"{self.options.seed}/{number}"), {}, time.monotonic()
        writer = threading.Thread(target=self.changes, args=(random.Random(f"{self.options.seed}/{number}/writer"), dice.randrange(40, 160), counts))
        writer.start()
        time.sleep(dice.random() * 0.3)
        self.restart_some(dice, 2)
        if disturbance is not None:
            getattr(self, disturbance)(dice)
        writer.join()
        self.changes(dice, dice.randrange(1, 6), counts)
        problems = list(converge(self.readers, self.expected(), CONVERGE_SECONDS * (2 if disturbance == "rotate" else 1)).items())
        if self.server.name == "deltaq":
            for resource in RESOURCES:
                problems += [(f"latest of {resource}", text) for text in [self.against_latest(resource)] if text]
        readers = {}
        for name, text in problems:
            readers.setdefault(text, []).append(name)
        self.fails(f"history {number} {disturbance or ''}", [f"{', '.join(names)}: {text}" for text, names in readers.items()])
        for reader in self.readers:
            # A fault is notified once.
            if reader.last and reader.last["faults"]:
                reader.start()
        seconds = time.monotonic() - began
        objects = {resource: len(self.server.objects(resource)) for resource in RESOURCES}
        print(f"history {number:4} {disturbance or 'quiet':10} {seconds:5.1f} s, {sum(counts.values())} changes, {objects}: {'FAILED' if problems else 'ok'}", flush=True)

    def against_latest(self, resource):
        """The queue's own view, and the wire, must have the same objects, but for what the wire adds."""
        def bare(found):
            found = compared(found)
            found["metadata"] = {name: value for name, value in found["metadata"].items() if name not in ("resourceVersion", "uid")}
            return found

        wire = {key: bare(found) for key, found in self.server.objects(resource).items()}
        latest = {key: bare(found) for key, found in self.server.latest(resource).items()}
        return difference(wire, latest, False) if wire != latest else ""

    # --- Disturbances

    def bulk(self, dice):
        """Many objects, so that the initial events take a while."""
        many = [random_object(dice, "prices", f"shop/bulk-{number:05}") for number in range(BULK)]
        status, reply = self.server.call("POST", "/v1/queues/prices/update", many)
        if status != 200:
            self.fails("bulk", [f"{status} {reply}"])

    def kill_nine(self, dice):
        self.bulk(dice)
        for reader in self.readers:
            reader.start()
        time.sleep(dice.uniform(0.1, 3))
        for _ in range(2):
            self.server.kill()
            self.server.run()
            time.sleep(dice.uniform(0, 1))

    def drain(self, dice):
        self.server.stop()
        time.sleep(dice.random())
        self.server.run()

    def cut(self, dice):
        """Connections break after some bytes, also in the middle of a frame."""
        for proxy in self.proxies:
            proxy.bytes_max = dice.randrange(500, 200_000)
            proxy.cut()
        time.sleep(dice.uniform(0.5, 2))
        for proxy in self.proxies:
            proxy.bytes_max = None

    def revoke(self, dice):
        copy = self.server.tokens.read_bytes()
        subprocess.run([self.server.binary, "token", "revoke", "clients", "--file", self.server.tokens], check=True, capture_output=True)
        self.server.reload()
        for proxy in self.proxies:
            proxy.cut()
        time.sleep(dice.uniform(1, 3))
        self.server.tokens.write_bytes(copy)
        self.server.reload()

    def rotate(self, dice):
        """A new token. Some libraries read it from a file, within a minute or two; the others are started again."""
        command = [self.server.binary, "token", "rotate", "clients", "--file", self.server.tokens]
        self.token = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        self.server.reload()
        for proxy in self.proxies:
            proxy.cut()
        self.token_file.write_text(self.token)
        for number in range(2):
            self.kubeconfig(number), self.kubeconfig(number, True)
        for reader in self.readers:
            if not reader.kind.reads_token_file:
                reader.start()

    def expire(self, dice):
        """More deletions than there are tombstones while nobody is connected."""
        self.bulk(dice)
        for proxy in self.proxies:
            proxy.end()
        gone = [{"metadata": {"namespace": "shop", "name": f"bulk-{number:05}"}} for number in range(BULK)]
        status, reply = self.server.call("POST", "/v1/queues/prices/delete", gone)
        if status != 200:
            self.fails("expire", [f"{status} {reply}"])
        time.sleep(dice.random())
        for proxy in self.proxies:
            proxy.listen()

    def restore(self, dice):
        file = self.folder / f"backup-{time.monotonic_ns()}"
        self.server.backup(file)
        self.changes(dice, 40, {})
        self.server.stop()
        self.server.restore(file)
        self.server.run()

    def recreate(self, dice):
        resource = dice.choice(list(RESOURCES))
        status, reply = self.server.call("DELETE", f"/v1/queues/{resource}")
        if status != 204:
            self.fails("recreate", [f"{status} {reply}"])
        time.sleep(dice.random() * 2)
        self.server.create(resource)

    DISTURBANCES = ["kill_nine", "cut", "revoke", "expire", "restore", "recreate", "drain"]

    def histories(self):
        self.start_readers()
        number = self.options.histories
        plan = [None] * number
        if self.server.name == "deltaq":
            # Each comes at least once, then in one history of ten.
            chosen = [*self.DISTURBANCES, "rotate"] + [self.dice.choice(self.DISTURBANCES) for _ in range(number // 10)]
            if self.options.disturbance:
                chosen = [self.options.disturbance] * number
            plan = [None, None, *chosen, *[None] * max(0, number - len(chosen))]
            rest = plan[2:]
            self.dice.shuffle(rest)
            plan[2:] = rest
        for position, disturbance in enumerate(plan):
            self.history(position, disturbance)
        for reader in self.readers:
            reader.stop()

    # --- Pages

    def pages(self):
        """Lists many objects in pages while they change. With the changes since the first page, the list must be the present state."""
        if self.server.name == "deltaq":
            # The pages go on only while the deletions since the first one are kept.
            self.server.stop()
            del self.server.environment["DELTAQ_WATCH__TOMBSTONES"]
            self.server.run()
        objects = PAGED if self.server.name == "deltaq" else PAGED // 20
        keys = [f"shop/paged-{number:06}" for number in range(objects)]
        if self.server.name == "deltaq":
            for begin in range(0, objects, 10_000):
                many = [random_object(random.Random(key), "prices", key) for key in keys[begin : begin + 10_000]]
                status, reply = self.server.call("POST", "/v1/queues/prices/update", many)
                if status != 200:
                    self.fails("pages", [f"{status} {str(reply)[:300]}"])
        else:
            for key in keys:
                self.server.call("POST", self.server.path("prices", None, "shop"), random_object(random.Random(key), "prices", key))
        ended, dice, steady = threading.Event(), random.Random(1), set(keys[::10])

        def write():
            while not ended.is_set():
                key = dice.choice(keys)
                if dice.random() < 0.4 and key not in steady:
                    self.server.call("DELETE", self.server.path("prices", key))
                else:
                    found = random_object(dice, "prices", key)
                    if self.server.call("POST", self.server.path("prices", None, "shop"), found)[0] == 409:
                        self.server.call("PATCH", self.server.path("prices", key), {"spec": {"eur": 1}}, "application/merge-patch+json")

        writer = threading.Thread(target=write)
        writer.start()
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig(0))}
        try:
            run = subprocess.run([self.programs.go, "-page=500", "pages"], env=environment, capture_output=True, text=True, timeout=300, check=False)
            if run.returncode == 0:
                # A few changes more, and then the watch from the version of the pages.
                time.sleep(0.5)
        finally:
            ended.set()
            writer.join()
        if run.returncode != 0:
            self.fails("pages", [run.stderr[-500:]])
            return
        listed = json.loads(run.stdout)
        self.fails("pages", run.stderr.splitlines()[:5] if listed["faults"] else [])
        missing = [key for key in steady if key not in listed["store"]]
        self.fails("pages", [f"{len(missing)} keys that were there all the time are missing: {missing[:3]}"] if missing else [])
        store, text, events = listed["store"], "", 0
        query = f"?watch=true&resourceVersion={listed['resourceVersion']}&timeoutSeconds=10"
        _, stream = self.server.call("GET", self.server.path("prices") + query, as_text=True)
        for line in stream.splitlines():
            event = json.loads(line)
            events += 1
            if event["type"] == "ERROR":
                self.fails("pages", [f"the watch from the version of the pages: {line[:300]}"])
                return
            key = f"{event['object']['metadata'].get('namespace')}/{event['object']['metadata'].get('name')}"
            if event["type"] == "DELETED":
                if store.pop(key, None) is None:
                    text = text or f"DELETED of {key}, which the pages do not have and no event added"
            elif event["type"] != "BOOKMARK":
                store[key] = event["object"]
        text = text or difference(self.server.objects("prices"), store, False)
        self.fails("pages", [text] if text else [])
        print(f"pages: {listed['pages']} pages of {objects} objects, then {events} events: {'FAILED' if text or missing else 'ok'}", flush=True)

    def kubectl(self):
        problems = judge_kubectl(self.server, self.kubeconfig(0), self.folder)
        print(f"kubectl: {'ok' if not problems else f'{len(problems)} faults'}", flush=True)
        self.fails("kubectl", problems)


def main():
    # The end of the script ends the servers and the readers, also after a SIGTERM.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--server", choices=["deltaq", "real"], default="deltaq")
    parser.add_argument("--histories", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["calls", "kubectl", "pages", "histories"], action="append")
    parser.add_argument("--reader", help="only readers whose names match this regular expression")
    parser.add_argument("--disturbance", help="only this one, in every history")
    options = parser.parse_args()
    target = ROOT / "target"
    programs = Programs(target / "kubernetes-wire")
    programs.build()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="judge-", dir=target / "kubernetes-wire"))
    if options.server == "real":
        built = pathlib.Path(os.environ.get("DELTAQ_KUBERNETES", target / "kubernetes")).resolve()
        if not (built / "versions.txt").exists():
            raise SystemExit(f"there is no API server in {built}: run scripts/kubernetes/apiserver.sh build {built}")
        server = Real(built, folder)
    else:
        # Few tombstones, so that a reader can be too late.
        server = Deltaq(os.path.abspath(options.binary), folder, {"WATCH__TOMBSTONES": str(TOMBSTONES)})
    judge = None
    try:
        server.start()
        judge = Judge(server, programs, folder, options)
        for name in options.only or ["calls", "kubectl", "histories", "pages"]:
            getattr(judge, name)()
    finally:
        for reader in judge.readers if judge else []:
            reader.stop()
        server.stop()
    if judge.problems:
        raise SystemExit(f"{len(judge.problems)} problems; the logs are in {folder}")
    shutil.rmtree(folder)
    print("all clients agree with the server")


if __name__ == "__main__":
    main()
