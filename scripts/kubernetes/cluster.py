"""An API server over etcd, a client of it, and a TCP proxy that fails as asked. For judge_kubernetes.py."""
import atexit
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

SCRIPT = pathlib.Path(__file__).parent / "apiserver.sh"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(what, holds, seconds=120):
    """Waits until something holds. A failed call counts as no."""
    end = time.time() + seconds
    while time.time() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if holds():
                return
        time.sleep(0.1)
    raise SystemExit(f"it takes too long until {what}")


class Api:
    """A client with one connection, for one thread."""

    def __init__(self, cluster, token="admin-token"):
        self.token, context = token, ssl.create_default_context(cafile=cluster.folder / "pki/authorities.crt")
        self.connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, context=context, timeout=5)

    def call(self, method, path, body=None, kind="application/json"):
        data = None if body is None else json.dumps(body)
        try:
            self.connection.request(method, path, data, {"authorization": f"Bearer {self.token}", "content-type": kind})
            reply = self.connection.getresponse()
            text = reply.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise
        return reply.status, json.loads(text) if text.startswith(b"{") else text.decode()


class Cluster:
    def __init__(self, programs, folder):
        self.programs, self.folder = programs, folder
        self.port, self.etcd_port, self.peer_port = (free_port() for _ in range(3))
        ports = {"KUBE_PORT": self.port, "KUBE_ETCD_PORT": self.etcd_port, "KUBE_PEER_PORT": self.peer_port}
        self.environment = {**os.environ, **{name: str(port) for name, port in ports.items()}}
        subprocess.run([SCRIPT, "keys", folder], check=True)
        self.etcd = self.api = None

    def run(self, name):
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([SCRIPT, name, self.programs, self.folder], env=self.environment, stdout=log, stderr=log)
        # A judge that fails in the middle leaves nothing behind.
        atexit.register(process.kill)
        return process

    def start(self):
        """Starts what does not run, and waits until ConfigMaps can be listed."""
        self.etcd, self.api, client = self.etcd or self.run("etcd"), self.run("api"), Api(self)
        paths = ("/readyz", "/api/v1/configmaps?limit=1")
        until("the API server is ready", lambda: all(client.call("GET", path)[0] == 200 for path in paths))

    def kill(self, with_etcd=False):
        for process in [self.api, self.etcd] if with_etcd else [self.api]:
            process.kill()
            process.wait()
        self.etcd = None if with_etcd else self.etcd

    def freeze(self, seconds):
        self.api.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.api.send_signal(signal.SIGCONT)

    def etcdctl(self, *arguments):
        command = [self.programs / "etcdctl", "--endpoints", f"http://127.0.0.1:{self.etcd_port}", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def compact(self):
        revision = json.loads(self.etcdctl("get", "/", "--limit", "1", "-w", "json"))["header"]["revision"]
        self.etcdctl("compact", str(revision), "--physical")

    def restore(self, copy):
        """Puts a copy in the place of the data. Nothing may run."""
        shutil.rmtree(self.folder / "data")
        peer = f"http://127.0.0.1:{self.peer_port}"
        command = [self.programs / "etcdutl", "snapshot", "restore", copy, "--data-dir", self.folder / "data", "--name", "t"]
        subprocess.run([*command, "--initial-cluster", f"t={peer}", "--initial-advertise-peer-urls", peer], check=True, capture_output=True)

    def serve_certificate(self, number):
        """Replaces the serving certificate by that of another authority."""
        for kind in ("key", "crt"):
            shutil.copy(self.folder / f"pki/serving-{number}.{kind}", self.folder / f"pki/serving.{kind}")


class Proxy:
    """Passes connections on. `mode` is for new ones: `pass`, `hold` (accepted, and nothing is passed, for ever) or `refuse` (accepted and closed)."""

    def __init__(self, target):
        self.target, self.mode, self.bytes_max, self.pairs, self.held = target, "pass", None, set(), set()
        self.port, self.listener = free_port(), None
        self.listen()

    def listen(self):
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def end(self):
        """There is nobody on the port, until `listen`."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.mode == "hold":
                self.held.add(client)
                continue
            try:
                if self.mode == "refuse":
                    raise ConnectionRefusedError
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            self.pairs.add(pair := (client, server))
            for source, sink in (pair, pair[::-1]):
                threading.Thread(target=self.pump, args=(pair, source, sink), daemon=True).start()

    def pump(self, pair, source, sink):
        count = 0
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                count += len(data)
                if self.bytes_max is not None and count > self.bytes_max:
                    break
                if pair not in self.held:
                    sink.sendall(data)
        self.close(pair)

    def close(self, pair):
        for side in pair:
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()
        self.pairs.discard(pair)

    def cut(self):
        for pair in list(self.pairs):
            self.close(pair)

    def silence(self):
        """The present connections stay open, and nothing is passed on them any more."""
        self.held |= self.pairs
