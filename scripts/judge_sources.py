#!/usr/bin/env python3
"""Judges deltaq reflect: a real source of each kind, a fault in front of it or in it, and what the queue has during the fault and afterwards.

    scripts/judge_sources.py BINARY [--kind KIND] [--fault NAME] [--seed N] [--jobs N] [--plant DEFECT] [--list]

Each fault has a source, a queue and a `deltaq reflect` of its own. While the fault lasts, the source changes. The judge demands:

- A fault that hides the source shows in `deltaq_reflect_up`, in the problem of the source and in readyz, and the queue keeps what it has. Any other
  fault does not keep changes from the queue. Afterwards the queue equals the source, `up` is 1, and there is no problem.
- The last success is as late as the last change, and a fault that hides the source does not move it. The process ends with exit code 0.
- A queue has the settings of `--create`, also after it was deleted.
- The deltas of each key are states that the source had, in their order and none twice. So no key is deleted that the source has, and a list that
  repeats another queues nothing.

Speed is not judged. PostgreSQL, PgBouncer, nginx and openssl must be installed. Exits with 1 if a fault was not endured. `--plant` falsifies
what the judge sees.
"""
import argparse
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

import sources.access_faults
import sources.http_faults
import sources.other_faults
import sources.pooler  # noqa: F401 - they register themselves
from sources.real import KINDS, SETTINGS, Server, Wrong, acknowledge, call, canon, end, free_port, spawn, until
from sources.registry import FAULTS, FREE, HIDDEN, PART, SHOWS_MAX, STALE, STEP_MAX, THROUGH
from sources.secure import Front, OfPostgres

LAST_SUCCESS = "last_success_timestamp_seconds"
# A setting of the queues that shows who has created them.
MAX_FAILURES = 7
# What `--plant` falsifies: a key is lost, a key is deleted, a delta comes twice, no failure shows, the last success moves on during a fault, the
# process does not end well, the other source of a file does not fail.
PLANTS = ("key", "deletion", "repeat", "health", "success", "exit", "beside")


class Case:
    """A source, a queue and a process between them, and the states that the source had."""

    def __init__(self, number, registered, arguments, server):
        kind, function, shows, pages, options = registered
        self.kind, self.function, self.shows, self.pages, self.plant = kind, function, shows, pages, arguments.plant
        self.options, self.name, self.queue = options, function.__name__, f"queue-{number}"
        self.rng = random.Random(f"{arguments.seed}/{kind}/{self.name}")
        self.folder = SETTINGS.work / f"{number:03}-{kind}-{self.name}"
        self.folder.mkdir()
        self.is_shared, self.changed_at, self.token, self.beside = "store" not in options, 0, self.folder / "own-token", None
        self.server, self.source, self.process = server, None, None
        self.history, self.kept, self.lives, self.keys, self.count = collections.defaultdict(list), {}, [collections.defaultdict(list)], 0, 0

    # The source.

    def put(self, key, **more):
        self.count, self.changed_at = self.count + 1, time.time()
        state = canon(self.source.put(key, {"key": key, "n": self.count, **more}))
        self.history[self.key_of(key)].append(state)

    def put_again(self, key):
        """Notes that the source has an earlier state of a key again."""
        self.history[key].append(canon(self.source.objects[key.rpartition("/")[2]]))

    def delete(self, key):
        self.changed_at = time.time()
        self.source.delete(key)
        self.history[self.key_of(key)].append(None)

    def key_of(self, key):
        return f"shop/{key}" if self.kind == "kubernetes" else key

    def truth(self):
        return {key: states[-1] for key, states in self.history.items() if states[-1] is not None}

    def change(self):
        """An update, a new key, and a deletion. The keys k000 to k002 are for the faults."""
        self.put(f"k{self.rng.randrange(3, 10):03}")
        self.put(f"k{self.keys:03}")
        self.keys += 1
        victims = [key for key in self.truth() if 10 <= int(key[-3:]) < 20]
        self.delete(self.rng.choice(victims)[-4:])

    # The queue.

    def latest(self):
        found = self.server.latest(self.queue)
        if self.plant == "key":
            found.pop(self.key_of("k004"), None)
        return found

    def drain(self):
        def note(item):
            self.lives[-1][item["key"]] += [None if delta["type"] == "Deleted" else delta["object"] for delta in item["deltas"]]
        acknowledge(self.server, self.queue, note)

    def new_life(self):
        """The queue begins anew: it gets everything again."""
        self.drain()
        self.lives.append(collections.defaultdict(list))

    def problem(self):
        sources = self.server.call("GET", f"{self.queue}/sources") or {"items": []}
        return next((source["problem"] for source in sources["items"] if source["source"] == "judge"), None)

    # The process.

    def start(self):
        self.port = free_port()
        binary, user = SETTINGS.binary, []
        if "user" in self.options and os.getuid() == 0:
            binary = shutil.copy(binary, self.folder / "deltaq")
            user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"]
        command = [*user, binary, "reflect", self.queue, "--source", "judge", "--url", f"http://127.0.0.1:{self.server.port}", "--interval", "200ms",
                   "--timeout", "2s", "--log-format", "human", "--metrics-listen", f"127.0.0.1:{self.port}", "--create", f"max_failures={MAX_FAILURES}"]
        if self.server.token:
            self.token.write_text(self.server.token)
            command += ["--token-file", self.token]
        given = [str(argument) for argument in self.source.arguments()]
        if self.beside:
            command, given = [binary, "reflect", "--config", self.file(), "--url", f"http://127.0.0.1:{self.server.port}", "--log-format", "human"], []
        self.process = spawn([*command, *self.options.get("flags", []), *given], self.folder / "reflect.log")

    def file(self):
        """A file with this source and another one."""
        tables = {"judge": (self.queue, self.source.table()), "beside": (f"{self.queue}-beside", self.beside.table)}
        lines = [f'metrics_listen = "127.0.0.1:{self.port}"']
        for name, (queue, table) in tables.items():
            (kind, settings), = table.items()
            lines += [f"[sources.{name}]", f'queue = "{queue}"', 'interval = "200ms"', 'timeout = "2s"', f"create = {{ max_failures = {MAX_FAILURES} }}"]
            lines += [f"[sources.{name}.{kind}]", *(f"{setting} = {json.dumps(value)}" for setting, value in settings.items())]
        (self.folder / "reflect.toml").write_text("\n".join(lines) + "\n")
        return self.folder / "reflect.toml"

    def page(self, path):
        with contextlib.suppress(OSError):
            return call(self.port, "GET", path)
        return 0, ""

    def metric(self, name, source="judge"):
        page = self.page("/metrics")[1].splitlines()
        lines = [line for line in page if line.startswith(f"deltaq_reflect_{name}{{") and f'source="{source}"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines) if lines else None

    def up(self):
        return 1.0 if self.plant == "health" else self.metric("up")

    # The judgement.

    def step(self):
        """The queue is in step with the source, and all say so."""
        limit = self.options.get("step", STEP_MAX) if not self.plant else 10
        until("the queue equals the source", lambda: self.latest() == self.truth(), limit)
        until("up is 1", lambda: self.metric("up") == 1, limit)
        until("the problem is null", lambda: self.problem() is None, limit)
        until("the last success is as late as the last change", lambda: self.metric(LAST_SUCCESS) >= int(self.changed_at), limit)
        until("readyz says 200", lambda: self.page("/readyz")[0] == 200, limit)
        if (found := self.server.call("GET", self.queue)["settings"]["max_failures"]) != MAX_FAILURES:
            raise Wrong(f"the queue has max_failures {found}: it was created without the settings of the source")

    def during(self, before):
        limit = self.options.get("limit", SHOWS_MAX) if not self.plant else 10
        if self.shows in (HIDDEN, FREE, PART):
            if self.options.get("up", self.shows == HIDDEN):
                until("up is 0", lambda: self.up() == 0, limit)
            if before is not None:
                problem = until("the source has a problem", lambda: self.plant != "health" and self.problem(), limit)
                if (clue := self.options.get("clue", "")) not in problem["detail"]:
                    raise Wrong(f"the problem does not say {clue!r}: {problem['detail']}")
            first, success = self.metric("failures_total") or 0, self.metric(LAST_SUCCESS)
            with contextlib.suppress(Wrong):
                until("it fails again", lambda: (self.metric("failures_total") or 0) > first, 4)
            if self.shows == HIDDEN and self.metric(LAST_SUCCESS) + (self.plant == "success") != success:
                raise Wrong("the last success has moved on during the fault")
        if self.shows in (HIDDEN, STALE):
            found = self.latest()
            if found != (before or {}):
                raise Wrong(f"the queue has changed during the fault: {self.difference(found, before or {})}")
        elif self.shows in (THROUGH, PART):
            until("the queue gets the changes during the fault", lambda: self.latest() == {**self.truth(), **self.kept}, limit)
        elif self.shows == FREE:
            found = self.latest()
            if lost := [key for key in before if key in self.truth() and key not in found]:
                raise Wrong(f"keys of the source were deleted during the fault: {lost}")
        else:
            time.sleep(2)
        ready = self.page("/readyz")
        if ready[0] != self.options.get("ready", 200 if before is not None or self.shows == THROUGH else 503):
            raise Wrong(f"readyz says {ready} during the fault")

    @staticmethod
    def difference(found, wanted):
        names = [key for key in {**found, **wanted} if found.get(key) != wanted.get(key)]
        return ", ".join(f"{key}: {shown(found.get(key))} instead of {shown(wanted.get(key))}" for key in sorted(names)[:4])

    def deltas(self):
        """The deltas are states of the source, in their order and none twice."""
        if self.plant == "deletion":
            self.lives[-1][self.key_of("k004")].append(None)
        if self.plant == "repeat":
            self.lives[-1][self.key_of("k004")] += self.history[self.key_of("k004")][-1:]
        for life in self.lives:
            for key, states in life.items():
                known, at = self.history.get(key, []), 0
                for state in states:
                    if state not in known[at:]:
                        what = "a deletion" if state is None else shown(state)
                        raise Wrong(f"the delta {what} of {key} is needless or out of order; all deltas: {shown(states)}; all states: {shown(known)}")
                    at += known[at:].index(state) + 1
        for key, states in self.lives[-1].items():
            if states[-1] != self.history[key][-1]:
                raise Wrong(f"the last delta of {key} is {shown(states[-1])}")

    def repeats(self):
        """Waits for lists that repeat the last one."""
        before = self.metric("lists_total")
        with contextlib.suppress(Wrong):
            until("two more lists", lambda: self.metric("lists_total") >= before + 2, 3)

    def run(self):
        if not self.is_shared:
            (self.folder / "server").mkdir()
            self.server = Server(self.folder / "server", self.options["store"], "own_token" in self.options)
        self.source = KINDS[self.kind](self)
        if "tls" in self.options:
            proxy = self.source.web or self.source.wire
            self.source.secure = OfPostgres(self.folder, self.source) if self.kind == "postgres" else Front(self.folder, proxy.port)
        if beside := self.options.get("beside"):
            self.beside = beside(self.folder)
        for number in range(25):
            self.put(f"k{number:03}")
        self.keys = 25
        running, before = self.function(self), None
        if self.options.get("at_start"):
            next(running)
            self.start()
        else:
            self.start()
            self.step()
            self.drain()
            self.change()
            self.step()
            before = self.latest()
            next(running)
            if self.shows == HIDDEN:
                # A list that was on its way when the fault began may still be accepted.
                with contextlib.suppress(Wrong):
                    until("the fault shows", lambda: self.metric("up") == 0, 2)
        if not self.options.get("quiet"):
            self.change()
        self.during(before)
        if self.source.web:
            self.source.web.meddle = None
        if isinstance(self.source, KINDS["rest"]):
            self.source.edit = self.source.more = None
        next(running, None)
        self.kept = {}
        self.step()
        self.change()
        self.step()
        self.repeats()
        self.drain()
        self.deltas()
        end(self.process, signal.SIGTERM)
        if self.process.returncode != (0 if self.plant != "exit" else 1):
            raise Wrong(f"the process has ended with {self.process.returncode}")

    def close(self):
        end(self.process)
        for part in (self.beside, self.source and self.source.secure, self.source):
            if part:
                part.close()
        if not self.is_shared and self.server:
            end(self.server.process)


def shown(state):
    return repr(state)[:300]


def judge(case):
    began = time.monotonic()
    try:
        case.run()
        wrong = None
    except Wrong as error:
        wrong = str(error)
        with contextlib.suppress(Exception):
            wrong += f"; {case.difference(case.latest(), case.truth())}"
    except Exception:
        wrong = traceback.format_exc()
    finally:
        with contextlib.suppress(Exception):
            case.close()
    label = "at start: " if case.options.get("at_start") else ""
    line = f"{'WRONG' if wrong else 'ok':6}{case.kind:16}{label + case.name:40}{case.shows:8}{time.monotonic() - began:7.1f} s"
    if wrong:
        log = case.folder / "reflect.log"
        tail = "".join(f"    | {text[:400]}\n" for text in log.read_text(errors="replace").splitlines()[-12:]) if log.exists() else ""
        line += f"\n    {wrong}\n{tail}"
    print(line, flush=True)
    return wrong is None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--fault", help="only faults whose name contains this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=5, help="faults at a time")
    parser.add_argument("--plant", choices=PLANTS)
    parser.add_argument("--list", action="store_true", help="only print the faults")
    arguments = parser.parse_args()
    chosen = [each for each in FAULTS if arguments.kind in (None, each[0]) and (arguments.fault or "") in each[1].__name__]
    # The longest ones first.
    chosen.sort(key=lambda each: -each[4].get("limit", 0))
    if arguments.list:
        print("\n".join(f"{kind:16}{function.__name__:40}{shows}" for kind, function, shows, *_ in chosen))
        return
    with tempfile.TemporaryDirectory(prefix="deltaq-judge-", ignore_cleanup_errors=True) as folder:
        SETTINGS.binary, SETTINGS.work = arguments.binary.resolve(), pathlib.Path(folder)
        SETTINGS.work.chmod(0o755)
        (SETTINGS.work / "shared").mkdir()
        server = Server(SETTINGS.work / "shared", False)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            results = list(pool.map(lambda case: judge(Case(*case, arguments, server)), enumerate(chosen)))
        end(server.process)
    failed = results.count(False)
    print(f"{len(results)} faults with seed {arguments.seed} in {time.monotonic() - began:.0f} s: {len(results) - failed} endured, {failed} not")
    sys.exit(failed > 0)


main()
