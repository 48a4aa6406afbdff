#!/usr/bin/env python3
"""Stages what the table "What stops unattended" of docs/operations.md names, and checks within a minute that each shows where the table says.

    scripts/judge_unattended.py BINARY [NAME...]

Needs PostgreSQL, openssl, unshare and the right to mount."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from sources.real import SETTINGS, Postgres, Wrong, call, end, free_port, spawn, until
from sources.secure import openssl

MINUTE = 60


class Server:
    """A server with a log, metrics and perhaps more settings."""

    def __init__(self, folder, *arguments, before=(), is_ready=True, **settings):
        self.folder, self.port, self.metrics_port = folder, free_port(), free_port()
        command = [*before, SETTINGS.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", f"127.0.0.1:{self.metrics_port}",
                   *(arguments or ("--data-dir", folder / "data"))]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
        self.process = spawn(command, folder / "server.log", env=environment | settings)
        if is_ready:
            until("the server is ready", lambda: self.ready() == 200, MINUTE)

    def ready(self):
        return self.status("GET", "/readyz")

    def status(self, method, path, body=None, token=None):
        try:
            return call(self.port, method, path, body, token)[0]
        except OSError:
            return None

    def ok(self, method, path, body=None, token=None):
        status, text = call(self.port, method, f"/v1/queues/{path}", body, token)
        if status >= 300:
            raise Wrong(f"{method} {path}: {status} {text}")
        return json.loads(text)

    def has_logged(self, text):
        until(f"the log has {text!r}", lambda: text in (self.folder / "server.log").read_text(), MINUTE)

    def metric(self, pattern, token=None):
        page = call(self.metrics_port, "GET", "/metrics", token=token)[1]
        found = re.search(rf"^{pattern}(?:{{[^}}]*}})? (\S+)$", page, re.M)
        return float(found[1]) if found else None

    def command(self, *words):
        return [SETTINGS.binary, *map(str, words), "--url", f"http://127.0.0.1:{self.port}"]

    def run(self, *words):
        """A command that ends: its exit status, and all that it says."""
        command = self.command(*words)
        if "--" in words:
            own = words[:words.index("--")]
            command = [*self.command(*own), *map(str, words[len(own):])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=MINUTE, check=False)
        return done.returncode, done.stdout + done.stderr

    def close(self):
        end(self.process)


def expect(what, condition):
    if not condition:
        raise Wrong(what)


def ended(outcome, status, *texts):
    expect(f"exit status {status} and {texts}, not {outcome}", outcome[0] == status and all(text in outcome[1] for text in texts))


def log_of(folder, name, text):
    until(f"{name} says {text!r}", lambda: text in (folder / name).read_text(), MINUTE)


def wrong_queue(folder):
    server = Server(folder)
    worker = spawn([*server.command("work", "stok"), "--", "cat"], folder / "worker")
    log_of(folder, "worker", "queue stok does not exist yet")
    end(worker)
    ended(server.run("work", "stok", "--until-empty", "--", "cat"), 3)
    return server


def missing_program(folder):
    server = Server(folder)
    server.ok("PUT", "stock", {})
    ended(server.run("work", "stock", "--", "/no/such/program"), 1, "can't run /no/such/program")
    (folder / "plain").write_text("no program")
    ended(server.run("work", "stock", "--", folder / "plain"), 1, "can't run")
    return server


def failing_keys(folder):
    server = Server(folder)
    server.ok("PUT", "stock", {"max_failures": 1})
    server.ok("POST", "stock/add", {"key": "a"})
    ended(server.run("work", "stock", "--until-empty", "--", "sh", "-c", "echo no price >&2; exit 9"), 1, "no price")
    ended(server.run("parked", "stock"), 0, "no price")
    server.has_logged("keys were parked")
    expect("the metric counts it", server.metric(r'deltaq_items(?=\{[^}]*state="parked")') == 1)
    return server


def no_workers(folder):
    server = Server(folder)
    server.ok("PUT", "stock", {})
    worker = spawn([*server.command("work", "stock", "--worker", "importer"), "--", "true"], folder / "worker")
    until("the worker is listed", lambda: "importer" in server.run("workers", "stock")[1], MINUTE)
    end(worker)
    server.ok("POST", "stock/add", {"key": "a"})
    first = until("the age grows", lambda: server.metric("deltaq_oldest_unacknowledged_age_seconds"), MINUTE)
    until("the age grows on", lambda: server.metric("deltaq_oldest_unacknowledged_age_seconds") > first, MINUTE)
    until("no worker is listed", lambda: "importer" not in server.run("workers", "stock")[1], MINUTE)
    return server


def reflect(server, folder, *arguments, name="reflect", source="shop"):
    port = free_port()
    command = [*server.command("reflect", "stock", "--source", source, "--interval", "1s", "--metrics-listen", f"127.0.0.1:{port}", *arguments)]
    return spawn(command, folder / name), port


def sources(server):
    return {source["source"]: source for source in server.ok("GET", "stock/sources")["items"]}


def ended_reflector(folder):
    server = Server(folder)
    (files := folder / "files").mkdir()
    (files / "a.json").write_text('{"key":"a"}')
    reflector, port = reflect(server, folder, "--files", files, "--create", "key=/key")

    def at():
        return server.status("GET", "/v1/queues/stock/sources") == 200 and sources(server).get("shop", {}).get("last_call_at")

    first = until("the source has called", at, MINUTE)
    (files / "b.json").write_text('{"key":"b"}')
    until("last_call_at moves", lambda: at() > first, MINUTE)
    expect("the reflector is up", "deltaq_reflect_up" in call(port, "GET", "/metrics")[1])
    end(reflector)
    last = at()
    (files / "c.json").write_text('{"key":"c"}')
    time.sleep(3)
    expect("last_call_at does not move", at() == last)
    try:
        call(port, "GET", "/metrics")
    except OSError:
        return server
    raise Wrong("the metrics of the reflector are still there")


def unreadable_source(folder):
    server = Server(folder)
    server.ok("PUT", "stock", {"key": "/key", "max_object_bytes": 1000})
    reflector, port = reflect(server, folder, "--list", f"http://127.0.0.1:{free_port()}/list")
    log_of(folder, "reflect", "refused")
    until("up is 0", lambda: re.search(r"^deltaq_reflect_up\S* 0", call(port, "GET", "/metrics")[1], re.M), MINUTE)
    until("the queue names the problem", lambda: "refused" in str(sources(server).get("shop", {}).get("problem")), MINUTE)
    (files := folder / "objects").mkdir()
    for key in range(20):
        (files / f"{key}.json").write_text(json.dumps({"key": f"k{key}", "text": "x" * (2000 if key == 7 else 1)}))
    other, _ = reflect(server, folder, "--files", files, name="files", source="folder")
    until("the queue names the object", lambda: "k7" in str(sources(server).get("folder", {}).get("problem")), MINUTE)
    log_of(folder, "files", "k7")
    end(reflector)
    end(other)
    return server


def other_create(folder):
    server = Server(folder)
    server.ok("PUT", "stock", {"key": "/sku"})
    (files := folder / "files").mkdir()
    (files / "a.json").write_text('{"key":"a","sku":"a"}')
    reflector, _ = reflect(server, folder, "--files", files, "--create", "key=/key")
    log_of(folder, "reflect", "/sku")
    log_of(folder, "reflect", "/key")
    end(reflector)
    return server


def blocked_follower(folder):
    server = Server(folder)
    server.ok("PUT", "stock", {})
    server.ok("PUT", "copy", {"follow": {"queue": "stock"}, "max_keys": 1})
    server.ok("POST", "stock/add", [{"key": "a"}, {"key": "b"}])
    until("the follower is blocked", lambda: server.ok("GET", "copy")["status"]["follow"]["state"] == "blocked", MINUTE)
    ended(server.run("queues"), 0, "blocked")
    ended(server.run("queue", "get", "copy"), 0, "blocked, full")
    first = until("the lag grows", lambda: server.metric("deltaq_follower_lag_seconds"), MINUTE)
    until("the lag grows on", lambda: server.metric("deltaq_follower_lag_seconds") > first, MINUTE)
    return server


def token(folder, *words):
    command = [SETTINGS.binary, "token", *words, "--file", folder / "tokens.toml"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def broken_files(folder):
    secret = token(folder, "all", "--verbs", "admin,read", "--queues", "*")
    server = Server(folder, DELTAQ_ACCESS__TOKENS_FILE=str(folder / "tokens.toml"))
    (folder / "tokens.toml").write_text("[[tokens]\n")
    server.has_logged("reload failed")
    until("the metric says it", lambda: server.metric("deltaq_last_reload_successful", secret) == 0, MINUTE)
    expect("the former tokens are in force", server.status("GET", "/v1/queues", token=secret) == 200)
    return server


def certificate(folder, days):
    """A certificate that signs itself. `x509` can make one that has expired, `req` can't."""
    if not (folder / "key").exists():
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", folder / "key", "-out", folder / "csr", "-subj", "/CN=localhost")
        (folder / "key").chmod(0o600)
    (folder / "extensions").write_text("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", folder / "csr", "-signkey", folder / "key", "-days", days, "-out", folder / "cert", "-extfile", folder / "extensions")


def expiring_certificate(folder):
    certificate(folder, 3)
    server = Server(folder, is_ready=False, DELTAQ_SERVER__TLS_CERT=str(folder / "cert"), DELTAQ_SERVER__TLS_KEY=str(folder / "key"))
    server.has_logged("the certificate of the server expires soon")
    page = subprocess.run(["curl", "-sk", f"https://127.0.0.1:{server.metrics_port}/metrics"], capture_output=True, text=True, check=True).stdout
    expires = float(re.search(r"^deltaq_tls_certificate_expiry_timestamp_seconds (\S+)$", page, re.M)[1])
    expect("the metric says when", 0 < expires - time.time() < 4 * 86400)
    certificate(folder, -1)
    server.has_logged("the certificate of the server has expired")
    return server


def expired_token(folder):
    secret = token(folder, "old", "--verbs", "read", "--queues", "*", "--expires", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3)))
    token(folder, "all", "--verbs", "admin", "--queues", "*")
    server = Server(folder, DELTAQ_ACCESS__TOKENS_FILE=str(folder / "tokens.toml"), DELTAQ_AUDIT__FILE=str(folder / "audit"))
    until("its calls are refused", lambda: server.status("GET", "/v1/queues", token=secret) == 401, MINUTE)
    server.has_logged("unauthorized")
    log_of(folder, "audit", "old")
    return server


def full_disk(folder):
    (volume := folder / "data").mkdir()
    mounted = f'mount -t tmpfs -o size=24m tmpfs "{volume}" && exec "$@"'
    server = Server(folder, "--data-dir", volume, before=["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounted, "sh"])
    server.ok("PUT", "stock", {})

    def is_refused():
        status = server.status("POST", "/v1/queues/stock/add", [{"key": f"k{time.monotonic_ns()}-{n}", "text": "x" * 20_000} for n in range(50)])
        return status in (503, 507) and server.ready() in (503, 507)

    until("calls and /readyz are refused", is_refused, MINUTE)
    server.has_logged("the journal failed")
    return server


def lost_database(folder):
    class Case:
        rng, options = None, ()

    Case.folder = folder
    database = Postgres(Case)
    store = f"postgres://judge@127.0.0.1:{database.port}/postgres"
    (folder / "secret").write_text("0123456789abcdef" * 2 + "\n")
    (folder / "secret").chmod(0o600)
    settings = {"NODE_NAME": "a", "ADVERTISE": "http://127.0.0.1:0", "SECRET_FILE": str(folder / "secret")}
    server = Server(folder, "--store", store, **{f"DELTAQ_CLUSTER__{name}": value for name, value in settings.items()})
    end(database.process)
    until("/readyz says not-owner", lambda: "not-owner" in call(server.port, "GET", "/readyz")[1], MINUTE)
    server.has_logged("heartbeat")
    return server


FAULTS = [wrong_queue, missing_program, failing_keys, no_workers, ended_reflector, unreadable_source, other_create, blocked_follower, broken_files,
          expiring_certificate, expired_token, full_disk, lost_database]


def main():
    SETTINGS.binary, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="deltaq-unattended-") as work:
        SETTINGS.work = pathlib.Path(work)
        for fault in [fault for fault in FAULTS if not wanted or fault.__name__ in wanted]:
            (folder := SETTINGS.work / fault.__name__).mkdir(mode=0o700)
            begun = time.monotonic()
            try:
                fault(folder).close()
                print(f"shows   {fault.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
            except Exception as error:
                failed += 1
                print(f"SILENT  {fault.__name__}: {error!r}", flush=True)
                print("".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}\n" for path in folder.iterdir() if path.is_file()))
    print(f"{failed} of {len(FAULTS)} things stop silently" if failed else "each shows")
    sys.exit(bool(failed))


main()
