"""The servers that the judge of the Kubernetes wire drives: a deltaq over TLS, and a real API server with the same two resources. Both have `call`, for the
wire, `start`, `stop`, `kill`, `kubeconfig` and `pids`."""

import atexit
import contextlib
import http.client
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cluster import Cluster, free_port, until  # noqa: E402

GROUP, VERSION = "shop.example", "v1"
RESOURCES = {"prices": ("Price", True), "rates": ("Rate", False)}
NAMESPACES = ("shop", "other")


class Connection:
    """A client with one connection for each thread, over TLS."""

    def __init__(self, port, authority, token):
        self.port, self.token, self.local, self.round = port, token, threading.local(), 0
        self.context = ssl.create_default_context(cafile=authority)

    def call(self, method, path, body=None, kind="application/json", seconds=60, accept="application/json", as_text=False):
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection = getattr(self.local, "connection", None)
        # A server ends connections that are idle.
        if connection is None or time.monotonic() - self.local.used > 10 or self.local.round != self.round:
            connection = self.local.connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=seconds)
        headers = {"authorization": f"Bearer {self.token}", "accept": accept} | ({"content-type": kind} if data is not None else {})
        try:
            connection.request(method, path, data, headers)
            reply = connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self.local.connection = None
            raise
        self.local.used, self.local.round = time.monotonic(), self.round
        return reply.status, json.loads(text) if text.startswith((b"{", b"[")) and not as_text else text.decode()


class Server:
    def __init__(self, folder):
        self.folder, self.connection = folder, None

    def call(self, *arguments, **options):
        return self.connection.call(*arguments, **options)

    def path(self, resource, key=None, namespace=None):
        of = f"/apis/{GROUP}/{VERSION}"
        if key is not None and "/" in key:
            namespace, key = key.split("/")
        if RESOURCES[resource][1] and namespace is not None:
            of += f"/namespaces/{namespace}"
        return f"{of}/{resource}" + ("" if key is None else f"/{key}")

    def objects(self, resource, query=""):
        """All objects, as one list of the wire has them."""
        status, reply = self.call("GET", self.path(resource) + query)
        if status != 200:
            raise OSError(f"the list of {resource}: {status} {reply}")
        found = {}
        for item in reply["items"]:
            metadata = item["metadata"]
            found[f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]] = item
        return found

    def kubeconfig(self, name, port, token=None, token_file=None):
        """Writes a kubeconfig, and returns its path."""
        user = {"tokenFile": str(token_file)} if token_file else {"token": token or self.connection.token}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "t",
            "clusters": [{"name": "t", "cluster": {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(self.authority)}}],
            "users": [{"name": "t", "user": user}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t", "namespace": "shop"}}],
        }
        path = self.folder / name
        path.with_suffix(".new").write_text(json.dumps(document))
        os.replace(path.with_suffix(".new"), path)
        return path


class Real(Server):
    name = "real"

    def __init__(self, programs, folder):
        super().__init__(folder)
        self.cluster = Cluster(programs, folder)
        self.authority = folder / "pki/ca-1.crt"
        self.port = self.http2_port = self.cluster.port
        self.connection = Connection(self.port, self.authority, "admin-token")

    def start(self):
        self.cluster.start()
        for namespace in NAMESPACES:
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for plural, (kind, namespaced) in RESOURCES.items():
            names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
            schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
            versions = [{"name": VERSION, "served": True, "storage": True, "schema": schema}]
            spec = {"group": GROUP, "scope": "Namespaced" if namespaced else "Cluster", "names": names, "versions": versions}
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            self.call("POST", path, {"metadata": {"name": f"{plural}.{GROUP}"}, "spec": spec})
        for plural in RESOURCES:
            until(f"{plural} are served", lambda plural=plural: self.call("GET", self.path(plural))[0] == 200)

    def pids(self):
        return [self.cluster.api.pid, self.cluster.etcd.pid]

    def stop(self):
        self.cluster.kill(with_etcd=True)


class Deltaq(Server):
    name = "deltaq"

    def __init__(self, binary, folder, settings=None):
        super().__init__(folder)
        self.binary, self.process = binary, None
        self.port, self.http2_port = free_port(), free_port()
        self.data, self.tokens = folder / "data", folder / "tokens.toml"
        self.certificates()
        settings = {
            "KUBERNETES__ENABLED": "true",
            "SERVER__TLS_CERT": str(folder / "serving.crt"),
            "SERVER__TLS_KEY": str(folder / "serving.key"),
            "SERVER__HTTP2_LISTEN": f"127.0.0.1:{self.http2_port}",
            "ACCESS__TOKENS_FILE": str(self.tokens),
            **(settings or {}),
        }
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
        self.environment |= {f"DELTAQ_{name}": value for name, value in settings.items()}
        self.connection = Connection(self.port, self.authority, self.token("admin", "admin,produce,consume,read"))
        self.reader = self.token("clients", "admin,produce,consume,read")

    def certificates(self):
        run = lambda *words: subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)  # noqa: E731
        (self.folder / "serving.ext").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n")
        new = ["-newkey", "rsa:2048", "-nodes"]
        run("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=judge", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        run("req", *new, "-keyout", "serving.key", "-out", "serving.csr", "-subj", "/CN=deltaq")
        run("x509", "-req", "-in", "serving.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-out", "serving.crt",
            "-extfile", "serving.ext")
        self.authority = self.folder / "ca.crt"

    def token(self, name, verbs):
        command = [self.binary, "token", name, "--verbs", verbs, "--queues", "*", "--file", self.tokens]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def run(self):
        """Starts the process, and waits until it is ready."""
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        command = [self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", "", "--data-dir", self.data, "--ready-file", ready]
        with open(self.folder / "serve.log", "ab") as log:
            self.process = subprocess.Popen([*command, "--log-level", "warn"], env=self.environment, stdout=log, stderr=log)
        atexit.register(self.process.kill)

        def is_ready():
            if self.process.poll() is not None:
                raise SystemExit(f"the server has ended: see {self.folder / 'serve.log'}")
            return ready.exists()

        until("deltaq is ready", is_ready)
        # No connection to the former process is used any more.
        self.connection.round += 1

    def start(self):
        self.run()
        for resource in RESOURCES:
            self.create(resource)

    def create(self, resource):
        kind, namespaced = RESOURCES[resource]
        key = [{"pointer": "/metadata/namespace", "optional": True}, "/metadata/name"] if namespaced else ["/metadata/name"]
        kubernetes = {"group": GROUP, "version": VERSION, "kind": kind, "plural": resource}
        status, reply = self.call("PUT", f"/v1/queues/{resource}", {"key": key, "mode": "latest", "kubernetes": kubernetes})
        if status not in (200, 201):
            raise SystemExit(f"PUT of the queue {resource}: {status} {reply}")

    def latest(self, resource):
        """All objects, as the queue has them."""
        found, more = {}, ""
        while more is not None:
            status, reply = self.call("GET", f"/v1/queues/{resource}/latest?limit=1000" + (f"&continue={more}" if more else ""))
            if status != 200:
                raise OSError(f"latest of {resource}: {status} {reply}")
            found |= {item["key"]: item["object"] for item in reply["items"]}
            more = reply["continue"]
        return found

    def pids(self):
        return [self.process.pid]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def backup(self, file):
        subprocess.run([self.binary, "backup", "--data-dir", self.data, "--to", file], check=True, capture_output=True)

    def restore(self, file):
        """As docs/backup.md says. The server does not run."""
        os.rename(self.data, self.data.with_name(f"data-{time.monotonic_ns()}"))
        self.data.mkdir(mode=0o700)
        subprocess.run(["install", "-m", "600", file, self.data / "deltaq.db"], check=True)


def usage(pid):
    """CPU seconds and peak memory in MiB of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = os.sysconf("SC_CLK_TCK")
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return (int(fields[11]) + int(fields[12])) / ticks, peak / 1024


@contextlib.contextmanager
def ended(process):
    try:
        yield process
    finally:
        process.kill()
        process.wait()
