#!/usr/bin/env python3
"""Judges `deltaq reflect --kubernetes` by a real API server: client-go's informer and deltaq read the same ConfigMaps through one proxy, while these
change, and each fault comes once. After each, the queue must equal the server's list, no key may have been deleted that the server has, the
longest lag of a change must be at most twice that of client-go (or a second), and deltaq must say how it does: `deltaq_reflect_up`, /readyz, and the
problem of the source.

    scripts/judge_kubernetes.py BINARY [FAULT...]

A lag counts from the first attempt of a change, so it includes the time in which the server was away. DELTAQ_KUBERNETES is the folder of
the programs that `scripts/kubernetes/apiserver.sh build` has made (target/kubernetes). All faults take about 13 minutes.
"""
import atexit
import base64
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "scripts/kubernetes"))

from cluster import Api, Cluster, Proxy, free_port, until  # noqa: E402

MAPS, ACCOUNTS = "/api/v1/namespaces/judge/configmaps", "/api/v1/namespaces/judge/serviceaccounts"
KEYS = 300
CHANGES_PER_SECOND = 12
# The initial list has about 700,000 bytes, less in the gzip of client-go.
CUT_BYTES = 150_000
# The longest lag, however long that of client-go is, and the time after which a reader is not waited for any more.
LAG_MAX = 60
NEVER = float("inf")


class Change(NamedTuple):
    number: int
    key: str
    is_deletion: bool
    tried_at: float


class Event(NamedTuple):
    at: float
    key: str
    # None for a deletion.
    number: int | None
    before: int | None


class Writer(threading.Thread):
    """Changes ConfigMaps, one after the other, each with a number of its own. A change that fails is tried again until it is made."""

    def __init__(self, api):
        super().__init__(daemon=True)
        self.api, self.may_run, self.is_idle = api, threading.Event(), threading.Event()
        self.changes, self.deleted, self.random = [], set(), random.Random(7)

    def put(self, name, number):
        data = {"data": {"number": str(number), "content": base64.b64encode(os.urandom(1_100)).decode()}}
        status, _ = self.api.call("PATCH", f"{MAPS}/{name}", data, "application/merge-patch+json")
        if status == 404:
            status, _ = self.api.call("POST", MAPS, {"metadata": {"name": name}, **data})
        return status in (200, 201)

    def make(self, name, is_deletion=False):
        number, is_made = len(self.changes) + 1, False
        self.changes.append(Change(number, f"judge/{name}", is_deletion, time.time()))
        while not is_made:
            with contextlib.suppress(OSError, http.client.HTTPException):
                is_made = self.api.call("DELETE", f"{MAPS}/{name}")[0] in (200, 404) if is_deletion else self.put(name, number)
            time.sleep(0 if is_made else 0.1)
        (self.deleted.add if is_deletion else self.deleted.discard)(name)

    def run(self):
        while True:
            if not self.may_run.is_set():
                self.is_idle.set()
                self.may_run.wait()
                self.is_idle.clear()
            dice = self.random.random()
            name = self.random.choice(sorted(self.deleted)) if dice < 0.1 and self.deleted else f"map-{self.random.randrange(KEYS):03}"
            self.make(name, dice > 0.95 and name not in self.deleted)
            time.sleep(1 / CHANGES_PER_SECOND)

    def pause(self):
        self.may_run.clear()
        self.is_idle.wait()


class Reader:
    """What a reader has shown, and the numbers of its keys."""

    def __init__(self):
        self.events, self.numbers = [], {}

    def shows(self, at, key, number):
        self.events.append(Event(at, key, number, self.numbers.get(key)))
        if number is None:
            self.numbers.pop(key, None)
        else:
            self.numbers[key] = number

    def in_step_at(self, numbers, seconds):
        """When the reader has these numbers."""
        end = time.time() + seconds
        while self.numbers != numbers:
            if time.time() > end:
                return NEVER
            time.sleep(0.05)
        return time.time()

    def longest_lag(self, changes):
        """A change that was never shown, because a later deletion of the key came first, has no lag."""
        longest, events = 0, [event for event in self.events if event.at >= changes[0].tried_at]
        for change in changes:
            deleted = [other for other in changes if other.key == change.key and other.is_deletion and other.number >= change.number]
            for event in events:
                if event.key != change.key or event.at < change.tried_at:
                    continue
                if event.number >= change.number if event.number is not None else any(other.tried_at <= event.at for other in deleted):
                    longest = max(longest, event.at - change.tried_at)
                    break
        return longest


class Informer(Reader):
    """client-go."""

    def __init__(self, program, arguments, log):
        super().__init__()
        self.command, self.log, self.process = [program, *arguments], open(log, "ab"), None

    def start(self):
        if self.process is not None:
            self.process.kill()
        self.numbers, self.process = {}, subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            row = json.loads(line)
            if process is self.process:
                self.shows(row["time"], row["key"], None if row["type"] == "Deleted" else int(row["number"]))


class Queue(Reader):
    """The queue, as its watch shows it."""

    def __init__(self, url):
        super().__init__()
        self.url, self.version = url, 0
        threading.Thread(target=self.follow, daemon=True).start()

    def follow(self):
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                with urllib.request.urlopen(f"{self.url}/watch?resource_version={self.version}", timeout=40) as stream:
                    for row in map(json.loads, stream):
                        self.version = row.get("resource_version", 0)
                        if "key" in row:
                            self.shows(time.time(), row["key"], None if row["type"] == "Deleted" else int(row["object"]["data"]["number"]))
            time.sleep(0.05)


class Health(NamedTuple):
    """What deltaq says about the source."""

    at: float
    up: bool
    ready: bool
    problem: str | None

    @classmethod
    def of(cls, process, queue):
        def get(url):
            try:
                with urllib.request.urlopen(url, timeout=2) as reply:
                    return reply.status, reply.read().decode()
            except (OSError, urllib.error.HTTPError):
                return 0, ""

        up = [line[-2:] for line in get(f"{process}/metrics")[1].splitlines() if line.startswith("deltaq_reflect_up{")]
        problems = [source["problem"] for source in json.loads(get(f"{queue}/sources")[1] or '{"items":[]}')["items"]]
        return cls(time.time(), up == [" 1"], get(f"{process}/readyz")[0] == 200, next((found["detail"] for found in problems if found), None))


class Judge:
    def __init__(self, binary, programs, folder):
        self.binary, self.folder, self.cluster = binary, folder, Cluster(programs, folder)
        self.cluster.start()
        self.proxy, self.writer = Proxy(self.cluster.port), Writer(Api(self.cluster))
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": "judge"}})
        server, metrics, ready = f"https://127.0.0.1:{self.proxy.port}", f"127.0.0.1:{free_port()}", folder / "ready"
        self.kubeconfig = {
            "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": str(folder / "ca.crt")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "current-context": "c",
        }
        self.trust(1)
        self.token = self.new_token("reader-1")
        for number in range(KEYS):
            self.writer.make(f"map-{number:03}")
        self.writer.start()

        command = [binary, "serve", "--in-memory", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--ready-file", ready]
        self.server = subprocess.Popen(command, stderr=open(folder / "serve.log", "ab"))
        atexit.register(self.server.kill)
        until("deltaq is ready", ready.exists)
        self.url = "http://" + json.loads(ready.read_text())["api"]
        self.reflect, self.reflect_log = None, folder / "reflect.log"
        self.reflect_command = [binary, "reflect", "maps", "--source", "cluster", "--create", "mode=latest", "--kubernetes", MAPS]
        self.reflect_command += ["--kubeconfig", folder / "kubeconfig", "--metrics-listen", metrics, "--log-format", "human", "--url", self.url]
        arguments = ["-server", server, "-ca-file", folder / "ca.crt", "-token-file", folder / "token", "-namespace", "judge"]
        self.informer = Informer(programs / "informer", arguments, folder / "informer.log")
        self.queue, self.health = Queue(f"{self.url}/v1/queues/maps"), []
        self.now = lambda: Health.of(f"http://{metrics}", self.queue.url)
        threading.Thread(target=self.sample, daemon=True).start()

    def call(self, *arguments):
        """A call with a new connection, because the API server is started again now and then."""
        return Api(self.cluster).call(*arguments)

    def write(self, name, text):
        (self.folder / "new").write_text(text)
        os.replace(self.folder / "new", self.folder / name)

    def trust(self, authority):
        self.write("ca.crt", (self.folder / f"pki/ca-{authority}.crt").read_text())

    def new_token(self, account):
        """A token of a new account, for both readers."""
        self.call("POST", ACCOUNTS, {"metadata": {"name": account}})
        token = self.call("POST", f"{ACCOUNTS}/{account}/token", {"spec": {}})[1]["status"]["token"]
        self.write("token", token)
        self.write("kubeconfig", json.dumps({**self.kubeconfig, "users": [{"name": "c", "user": {"token": token}}]}))
        return token

    def start_readers(self):
        if self.reflect is not None:
            self.reflect.kill()
            self.reflect.wait()
        self.reflect = subprocess.Popen(self.reflect_command, stderr=open(self.reflect_log, "ab"))
        self.informer.start()

    def sample(self):
        while True:
            self.health.append(self.now())
            time.sleep(0.2)

    def stop(self):
        for process in (self.reflect, self.informer.process):
            if process is not None:
                process.kill()
        self.cluster.kill(with_etcd=True)

    def server_objects(self):
        return {f"judge/{item['metadata']['name']}": item for item in self.call("GET", MAPS)[1]["items"]}

    def server_numbers(self):
        return {key: int(item["data"]["number"]) for key, item in self.server_objects().items()}

    def queue_equals_server(self):
        rows = subprocess.run([self.binary, "latest", "maps", "-o", "ndjson", "--url", self.url], capture_output=True, check=True, text=True)
        latest = {row["key"]: row["object"] for row in map(json.loads, rows.stdout.splitlines())}
        kinds = {(found.pop("kind"), found.pop("apiVersion")) for found in latest.values()}
        # A list leaves them out.
        return kinds == {("ConfigMap", "v1")} and latest == self.server_objects()

    def judge(self, fault):
        """Applies a fault to readers that have met none. Returns its figures, and what was wrong."""
        self.start_readers()
        until("both readers are in step", lambda: self.now().up and self.queue.numbers == self.informer.numbers == self.server_numbers())
        began, log_began = time.time(), self.reflect_log.stat().st_size
        self.began, self.refused, self.loses_keys = began, None, False
        self.writer.may_run.set()
        time.sleep(1)
        fault.apply(self)
        time.sleep(3)
        self.writer.pause()
        numbers, paused = self.server_numbers(), time.time()
        at = self.queue.in_step_at(numbers, LAG_MAX)
        go_at = self.informer.in_step_at(numbers, 30)

        changes = [change for change in self.writer.changes if change.tried_at >= self.began]
        lag = self.queue.longest_lag(changes) if at < NEVER else NEVER
        go_lag = self.informer.longest_lag(changes) if go_at < NEVER else NEVER
        most = min(max(2 * go_lag, 1), LAG_MAX)
        wrong = [] if lag <= most else ["the lag is too long"]
        if not self.queue_equals_server():
            wrong.append("the queue is not the server's list")
        if fault.says not in self.reflect_log.read_bytes()[log_began:].decode():
            wrong.append(f"the log does not say {fault.says!r}")
        wrong += ([] if self.loses_keys else self.wrong_deletions(began)) + self.wrong_health()
        samples = [sample for sample in self.health if sample.at >= began]
        down_s = sum(after.at - sample.at for sample, after in itertools.pairwise(samples) if not sample.up)
        late_s = max(0, at - paused)
        return f"lag {lag:6.2f} s, client-go {go_lag:6.2f} s, at most {most:6.2f} s; in step after {late_s:6.2f} s; up 0 for {down_s:4.1f} s", wrong

    def wrong_deletions(self, since):
        """Keys that the queue has lost although nobody has deleted them."""
        deletions = [change for change in self.writer.changes if change.is_deletion]
        lost = [event for event in self.queue.events if event.at >= since and event.number is None and event.before is not None]
        wrong = {
            key for at, key, _, before in lost if not any(of == key and number > before and tried <= at for number, of, _, tried in deletions)
        }
        return [f"{len(wrong)} keys were deleted that the server has"] if wrong else []

    def wrong_health(self):
        begin, end, clue, ready = self.refused or (NEVER, 0, "", True)
        wrong = [
            f"{health.at - self.began:.1f} s after its begin, while the source is refused: {health}"
            for health in self.health
            if begin <= health.at <= end and (health.up or health.ready != ready or not health.problem or clue not in health.problem)
        ]
        end, health = time.time() + 3, self.now()
        while not (health.up and health.ready and health.problem is None):
            if time.time() > end:
                return [*wrong[:1], f"3 s after its end: {health}"]
            time.sleep(0.2)
            health = self.now()
        return wrong[:1]

    def is_refused(self, seconds, grace=3, clue="", ready=True):
        """Waits while no reader can read. After some grace deltaq must say so, until this returns (a sample takes a moment)."""
        begin = time.time()
        time.sleep(seconds)
        self.refused = (begin + grace, time.time() - 0.3, clue, ready)


def cut_often(judge):
    for _ in range(6):
        time.sleep(5)
        judge.proxy.cut()


def cut_once(judge):
    judge.proxy.cut()
    time.sleep(65)
    judge.proxy.cut()


def cut_in_list(judge):
    judge.proxy.bytes_max = CUT_BYTES
    judge.start_readers()
    judge.is_refused(12, ready=False)
    judge.proxy.bytes_max = None


def silent_accepts(judge):
    judge.proxy.mode = "hold"
    judge.proxy.cut()
    # A connection is given up after 10 s.
    judge.is_refused(20, grace=13)
    judge.proxy.mode = "pass"


def outages(count, seconds):
    """Each new connection ends at once."""
    def apply(judge):
        for _ in range(count):
            judge.proxy.mode = "refuse"
            judge.proxy.cut()
            time.sleep(seconds)
            judge.proxy.mode = "pass"
            time.sleep(15)
    return Fault(apply, "is not in step")


def away(seconds):
    """Nobody is on the port."""
    def apply(judge):
        judge.proxy.end()
        time.sleep(seconds)
        judge.proxy.listen()
        time.sleep(15)
    return Fault(apply, "is not in step")


def kill(judge):
    judge.cluster.kill()
    judge.is_refused(8)
    judge.cluster.start()


def compact(judge):
    judge.proxy.mode = "refuse"
    judge.proxy.cut()
    time.sleep(3)
    judge.cluster.compact()
    # The watch cache of the API server has the old versions until it starts again.
    judge.cluster.kill()
    judge.cluster.start()
    judge.proxy.mode = "pass"


def restore(judge):
    copy, judge.loses_keys = judge.folder / "copy", True
    judge.cluster.etcdctl("snapshot", "save", str(copy))
    time.sleep(12)
    judge.writer.pause()
    time.sleep(1)
    judge.cluster.kill(with_etcd=True)
    judge.cluster.restore(copy)
    # Before the changes that are judged, the readers see that later ones are lost.
    judge.cluster.start()
    judge.began = time.time()
    judge.writer.may_run.set()


def replace_certificate(judge):
    # A connection that resumes a TLS session of this process would not ask for the certificate.
    judge.cluster.kill()
    judge.cluster.serve_certificate(2)
    judge.cluster.start()
    judge.is_refused(15, grace=12, clue="certificate")
    judge.trust(2)
    # client-go reads an authority again after 5 minutes, so its users start it again.
    judge.informer.start()


def replace_token(judge):
    judge.call("DELETE", f"{ACCOUNTS}/reader-1")
    old = Api(judge.cluster, judge.token)
    # The API server believes a token for 10 s.
    until("the old token is refused", lambda: old.call("GET", f"{MAPS}?limit=1")[0] == 401)
    judge.proxy.cut()
    judge.is_refused(5, clue="401")
    judge.new_token("reader-2")


class Fault(NamedTuple):
    apply: object
    # A part of the log that shows that the fault was met.
    says: str = ""


FAULTS = {
    "calm": Fault(lambda judge: time.sleep(10)),
    "cut-5s": Fault(cut_often, "goes on with a new connection"),
    "cut-65s": Fault(cut_once, "goes on with a new connection"),
    "cut-in-list": Fault(cut_in_list, "is not in step"),
    "silent-streams": Fault(lambda judge: judge.proxy.silence(), "goes on with a new connection"),
    "silent-accepts": Fault(silent_accepts, "is not in step"),
    "outages-2s": outages(4, 2),
    "outage-1s": outages(1, 1),
    "outage-5s": outages(1, 5),
    "outage-10s": outages(1, 10),
    "away-5s": away(5),
    "away-20s": away(20),
    "killed": Fault(kill, "is not in step"),
    "frozen": Fault(lambda judge: judge.cluster.freeze(20)),
    "compacted": Fault(compact, "410"),
    "restored": Fault(restore, "a list follows"),
    "certificate": Fault(replace_certificate, "certificate"),
    "token": Fault(replace_token, "401"),
}


def main():
    binary, names, failed = os.path.abspath(sys.argv[1]), sys.argv[2:] or list(FAULTS), []
    programs = pathlib.Path(os.environ.get("DELTAQ_KUBERNETES", ROOT / "target/kubernetes")).resolve()
    if not (programs / "versions.txt").exists():
        raise SystemExit(f"there is no API server in {programs}: run scripts/kubernetes/apiserver.sh build {programs}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="judge-", dir=programs))
    judge = Judge(binary, programs, folder)
    try:
        for name in names:
            figures, wrong = judge.judge(FAULTS[name])
            print(f"{name:14} {'FAILED' if wrong else 'ok    '} {figures}", *wrong, sep="\n    ", flush=True)
            failed += [name] if wrong else []
    finally:
        judge.stop()
    if failed:
        raise SystemExit(f"{len(failed)} of {len(names)} faults are not met: {', '.join(failed)}; the logs are in {folder}")
    shutil.rmtree(folder)
    print(f"all {len(names)} faults are met")


if __name__ == "__main__":
    main()
