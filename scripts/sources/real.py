"""Real sources of the judge, each with a place where a fault can be put: a proxy, a reply, the files, the program itself."""
import contextlib
import decimal
import email.utils
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.parse
from typing import ClassVar

JSON = ("content-type", "application/json")
LOCK = threading.Lock()
USED_PORTS = set()
# The binary, and a folder for everything.
SETTINGS = types.SimpleNamespace(binary=None, work=None)


class Wrong(Exception):
    """The judge's objection."""


def free_port():
    with LOCK:
        while True:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                port = listener.getsockname()[1]
            if port not in USED_PORTS:
                USED_PORTS.add(port)
                return port


def until(what, condition, seconds):
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise Wrong(f"not within {seconds} s: {what}")
        time.sleep(0.15)


def dumps(value):
    """JSON; a text "@1.10@" stands for a number with these digits."""
    return re.sub(r'"@([-0-9.e]+)@"', r"\1", json.dumps(value))


def canon(value):
    return json.loads(dumps(value), parse_float=decimal.Decimal)


def spawn(command, log, **options):
    """A process that ends with the judge."""
    with open(log, "ab") as output:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, **options)


def end(process, how=signal.SIGKILL):
    if process and process.poll() is None:
        process.send_signal(how)
        process.wait()


def call(port, method, path, body=None, token=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        headers = {"content-type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        connection.request(method, path, None if body is None else dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    finally:
        connection.close()


class Server:
    """A deltaq server, perhaps with a token."""

    def __init__(self, folder, durable, has_token=False):
        self.folder, self.durable, self.port, self.process, self.token = folder, durable, free_port(), None, None
        if has_token:
            self.token = self.new_token("all", "--verbs", "admin,produce,consume,read", "--queues", "*")
        self.start()

    def new_token(self, *arguments):
        command = [SETTINGS.binary, "token", *arguments, "--file", self.folder / "tokens.toml"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def rotate(self, before=lambda token: None):
        """Replaces the token. `before` gets the new one before the server refuses the old one."""
        old, self.token = self.token, self.new_token("rotate", "all")
        before(self.token)
        self.process.send_signal(signal.SIGHUP)
        until("the old token is refused", lambda: call(self.port, "GET", "/v1/queues", token=old)[0] == 401, 20)
        return self.token

    def start(self):
        store = ["--data-dir", self.folder / "data"] if self.durable else ["--in-memory"]
        command = [SETTINGS.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", "", "--log-level", "warn", *store]
        environment = {**os.environ, **({"DELTAQ_ACCESS__TOKENS_FILE": str(self.folder / "tokens.toml")} if self.token else {})}
        self.process = spawn(command, self.folder / "server.log", env=environment)
        until("the server is ready", self.is_ready, 60)

    def is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return call(self.port, "GET", "/readyz")[0] == 200
        return False

    def call(self, method, path, body=None):
        status, text = call(self.port, method, f"/v1/queues/{path}", body, self.token)
        if status == 404 and method == "GET":
            return None
        if status >= 300:
            raise Wrong(f"the server answered {method} {path} with {status}: {text[:300]}")
        return json.loads(text, parse_float=decimal.Decimal) if text else None

    def latest(self, queue):
        found = self.call("GET", f"{queue}/latest?limit=5000")
        return {item["key"]: item["object"] for item in found["items"]} if found else {}


def acknowledge(server, queue, note=lambda item: None):
    """Takes and acknowledges all deltas of a queue."""
    settle = []
    while True:
        items = server.call("POST", f"{queue}/pop?max=1000", {"settle": settle})["items"]
        if not items:
            return
        for item in items:
            note(item)
        settle = [{"lease_id": item["lease"]["id"], "as": "ack"} for item in items]


class Wire:
    """A TCP proxy. `mode` is pass, silent, or the number of bytes of the server after which a connection is reset."""

    def __init__(self, target):
        self.target, self.port, self.mode, self.listener, self.open = target, free_port(), "pass", None, set()
        self.listen()

    def listen(self):
        self.listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def refuse(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut_all()

    def cut_all(self):
        for connected in list(self.open):
            reset(connected)

    def accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            return reset(client)
        self.open |= {client, server}
        threading.Thread(target=self.pump, args=(client, server, False), daemon=True).start()
        return self.pump(server, client, True)

    def pump(self, source, target, is_reply):
        count = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                while self.mode == "silent":
                    time.sleep(0.1)
                count += len(data) if is_reply else 0
                if isinstance(self.mode, int) and count > self.mode:
                    target.sendall(data[:len(data) // 2])
                    break
                target.sendall(data)
        self.open -= {source, target}
        reset(source)
        reset(target)


def abort(connected):
    """Closes a connection by RST."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


def reset(connected):
    """Closes a connection, and wakes the thread that reads from it."""
    with contextlib.suppress(OSError):
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()


class Request:
    def __init__(self, target, headers):
        self.target, self.path, self.headers = target, urllib.parse.urlsplit(target).path, headers
        self.query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(target).query))
        self.page = 0


class Reply:
    def __init__(self, status, body=b"", headers=(), stream=None):
        self.status, self.body, self.headers, self.stream = status, body if isinstance(body, bytes) else body.encode(), list(headers), stream

    def head(self, length=True):
        lines = [f"HTTP/1.1 {self.status} Status", "connection: close", *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*lines, *([f"content-length: {len(self.body)}"] if length else [])]).encode() + b"\r\n\r\n"


class Web(Wire):
    """An HTTP server. `meddle` may change a reply, or write to the connection itself and return None."""

    def __init__(self, handler):
        self.handler, self.meddle, self.token = handler, None, None
        super().__init__(0)

    def serve(self, client):
        self.open.add(client)
        with contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                data = client.recv(65536)
                if not data:
                    raise ConnectionError
                head += data
            first, *lines = head.decode().split("\r\n")
            pairs = (line.split(":", 1) for line in lines if ":" in line)
            request = Request(first.split(" ")[1], {name.lower(): value.strip() for name, value in pairs})
            reply = self.handler(request)
            if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
                reply = Reply(401, '{"kind":"Status","code":401,"message":"Unauthorized"}')
            meddle = self.meddle
            reply = meddle(request, reply, client) if meddle else reply
            if reply and reply.stream:
                client.sendall(reply.head(length=False))
                reply.stream(client)
            elif reply:
                client.sendall(reply.head() + reply.body)
        self.open.discard(client)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            client.settimeout(1)
            client.recv(1)
        client.close()


class Source:
    """A real source. `put` makes a state of a key and returns it. `secure` is TLS in front of it."""

    web = wire = secure = None

    def __init__(self, case):
        self.case, self.folder, self.rng, self.objects = case, case.folder, case.rng, {}
        self.start()

    def start(self):
        pass

    def put(self, key, state):
        self.objects[key] = state
        return state

    def delete(self, key):
        del self.objects[key]

    def url(self, port):
        return f"https://127.0.0.1:{self.secure.port}" if self.secure else f"http://127.0.0.1:{port}"

    def authorities(self):
        return ["--source-ca-file", self.secure.ca_file] if self.secure else []

    def close(self):
        pass


class Rest(Source):
    """A list in pages. A page has the keys of one ten, so no key moves to another page."""

    PAGES = ("link", "cursor", "url", "page", "offset", "single")
    FLAGS: ClassVar = {"cursor": ["--next", "/meta/next", "--next-parameter", "after"], "url": ["--next", "/next"],
                       "page": ["--page-parameter", "page"], "offset": ["--next", "/next_offset", "--next-parameter", "offset"]}

    def start(self):
        self.paging = self.rng.choice(self.case.pages or self.PAGES)
        self.edit = self.more = None
        self.web = Web(self.reply)
        self.token = self.folder / "headers"
        self.token.write_text("Authorization: Bearer one\n")

    def put(self, key, state):
        self.objects = {**self.objects, key: state}
        return state

    def delete(self, key):
        self.objects = {other: state for other, state in self.objects.items() if other != key}

    def arguments(self, port=None):
        items = ["--items", "/data"] if self.paging in self.FLAGS else []
        address = ["--list", f"{self.url(port or self.web.port)}/list", *self.authorities()]
        return [*address, "--header-file", self.token, *items, *self.FLAGS.get(self.paging, [])]

    def table(self):
        return {"rest": {"list": f"{self.url(self.web.port)}/list", "header_file": str(self.token)}}

    def reply(self, request):
        objects, query = self.objects, request.query
        if request.path not in ("/list", "/moved"):
            return Reply(404, "{}")
        places = {"link": ("p", 1), "cursor": ("after", 1), "url": ("p", 1), "page": ("page", 1), "offset": ("offset", 10)}
        name, unit = places.get(self.paging, ("p", 1))
        page = int(query.get(name, 1 if self.paging == "page" else 0)) // unit - (self.paging == "page")
        request.page = page
        is_single = self.paging in ("single", "lines")
        items = [state for key, state in sorted(objects.items()) if is_single or int(key[1:]) // 10 == page]
        items = self.edit(page, json.loads(json.dumps(items))) if self.edit else items
        has_more = not is_single and any(int(key[1:]) // 10 > page for key in objects)
        headers = [JSON, ("date", email.utils.formatdate(usegmt=True))]
        if self.paging == "lines":
            return Reply(200, "".join(dumps(item) + "\n" for item in items), [("content-type", "application/x-ndjson")])
        if self.paging == "single":
            body = dumps(items)
            tag = f'"{hash(body)}"'
            return Reply(304, b"", [("etag", tag)]) if request.headers.get("if-none-match") == tag else Reply(200, body, [*headers, ("etag", tag)])
        if self.paging == "link":
            return Reply(200, dumps(items), [*headers, *([("link", f'<?p={page + 1}>; rel="next"')] if has_more else [])])
        more = {"cursor": {"meta": {"next": str(page + 1) if has_more else None}}, "url": {"next": f"/list?p={page + 1}" if has_more else None},
                "page": {}, "offset": {"next_offset": 10 * (page + 1) if has_more else None}}[self.paging]
        body = {"data": items, **more}
        return Reply(200, dumps(self.more(page, has_more, body) if self.more else body), headers)

    def close(self):
        self.web.refuse()


class Nginx(Rest):
    """The same list behind nginx."""

    PAGES = ("cursor", "url", "page", "offset")

    def start(self):
        super().start()
        self.port, self.process = free_port(), None
        self.run()

    def configure(self, of_http="", of_place="PROXY"):
        """Writes the configuration and lets nginx read it. PROXY stands for the way to the origin."""
        proxy = f"""proxy_pass http://127.0.0.1:{self.web.port}; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_read_timeout 1s;
            proxy_cache pages; proxy_cache_valid 200 1s; proxy_cache_lock on; gzip on; gzip_proxied any; gzip_min_length 1; gzip_types application/json;"""
        temporary = " ".join(f"{name}_temp_path {self.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(f"""{'user root;' if os.getuid() == 0 else ''} daemon off; worker_processes 1;
            error_log {self.folder}/error.log; pid {self.folder}/nginx.pid; events {{ worker_connections 64; }}
            http {{ access_log off; {temporary} proxy_cache_path {self.folder}/cache keys_zone=pages:1m; {of_http}
            server {{ listen 127.0.0.1:{self.port}; location / {{ {of_place.replace('PROXY', proxy)} }} }} }}""")
        if self.process:
            self.process.send_signal(signal.SIGHUP)
            time.sleep(0.5)

    def run(self):
        self.process = None
        self.configure()
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        self.process = spawn([nginx, "-e", self.folder / "error.log", "-p", self.folder, "-c", self.folder / "nginx.conf"], self.folder / "nginx.log")
        until("nginx is ready", self.is_ready, 20)

    def is_ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return call(self.port, "GET", "/none")[0] == 404
        return False

    def arguments(self):
        return super().arguments(self.port)

    def close(self):
        end(self.process, signal.SIGTERM)
        super().close()


class Files(Source):
    """A file for each key."""

    def start(self):
        self.path = self.folder / "files"
        (self.path / "sub").mkdir(parents=True)

    def file(self, key):
        return self.path / ("sub" if int(key[1:]) % 2 else ".") / f"{key}.json"

    def put(self, key, state):
        # The temporary file has another suffix.
        partial = self.file(key).with_suffix(".partial")
        partial.write_text(dumps(state))
        partial.rename(self.file(key))
        return state

    def delete(self, key):
        self.file(key).unlink()

    def arguments(self):
        return ["--files", self.path, "--suffix", ".json"]

    def table(self):
        return {"files": {"path": str(self.path), "suffix": ".json"}}


class Command(Source):
    """A script that prints one object per line."""

    def start(self):
        self.script, self.list = self.folder / "dump", self.folder / "list"
        self.say(f"exec cat {self.list}")

    def say(self, text):
        partial = self.folder / "dump.partial"
        partial.write_text(f"#!/bin/sh\n{text}\n")
        partial.chmod(0o755)
        partial.rename(self.script)

    def write(self):
        partial = self.folder / "list.partial"
        partial.write_text("".join(dumps(state) + "\n" for state in self.objects.values()))
        partial.rename(self.list)

    def put(self, key, state):
        self.objects[key] = state
        self.write()
        return state

    def delete(self, key):
        del self.objects[key]
        self.write()

    def arguments(self):
        return ["--", self.script]


class Sqlite(Source):
    """A table, of which the whole list is read each time."""

    SINCE = ()

    def start(self):
        self.path, self.version = self.folder / "shop.db", 0
        self.run_sql("CREATE TABLE shop (key TEXT UNIQUE, n INTEGER, note TEXT, version INTEGER)")

    def run_sql(self, *statement):
        with contextlib.closing(sqlite3.connect(self.path, timeout=30)) as database, database:
            database.execute(*statement)

    def put(self, key, state):
        self.version += 1
        row = (key, state["n"], state.get("note"), self.version)
        self.run_sql("INSERT OR REPLACE INTO shop VALUES (?, ?, ?, ?)", row)
        return dict(zip(("key", "n", "note", "version"), row, strict=True))

    def delete(self, key):
        self.run_sql("DELETE FROM shop WHERE key = ?", (key,))

    def arguments(self):
        return ["--sql", f"sqlite:{self.path}", "--query", "SELECT * FROM shop", *self.SINCE]

    def table(self):
        return {"sql": {"database": f"sqlite:{self.path}", "query": "SELECT * FROM shop"}}


class SqliteSince(Sqlite):
    """The same table, with looks for changes between the lists."""

    SINCE = ("--since", "version", "--relist", "2s")


def program(name):
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return found[-1] if found else shutil.which(name) or sys.exit(f"{name} is not installed: install the Debian package postgresql")


class Postgres(Source):
    """A server of its own, behind a proxy."""

    SINCE, QUERY = (), "SELECT shop.* FROM shop, (SELECT pg_sleep(0.05)) AS slow"

    def start(self):
        self.user = ["--reuid", "postgres", "--regid", "postgres", "--clear-groups"] if os.getuid() == 0 else []
        self.data = pathlib.Path(tempfile.mkdtemp(prefix="deltaq-judge-postgres-", dir="/tmp"))
        with LOCK:
            self.make()
        self.port, self.process = free_port(), None
        self.run()
        self.run_sql("CREATE ROLE reader LOGIN; CREATE SEQUENCE versions; CREATE TABLE shop (key text UNIQUE, n bigint, note text, version bigint)")
        self.run_sql("GRANT SELECT ON shop TO reader")
        self.wire = Wire(self.port)

    def make(self):
        """Copies the data folder that the first one has made."""
        template = SETTINGS.work / "template"
        if not template.exists():
            made = self.data / "data"
            if self.user:
                shutil.chown(self.data, "postgres", "postgres")
            command = [program("initdb"), "-A", "trust", "-U", "judge", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1", "-D", made]
            subprocess.run(["setpriv", *self.user, *map(str, command)], check=True, capture_output=True, cwd="/")
            subprocess.run(["cp", "-a", made, template], check=True)
        else:
            subprocess.run(["cp", "-a", template, self.data / "data"], check=True)
            if self.user:
                shutil.chown(self.data, "postgres", "postgres")

    def run(self):
        settings = [f"port={self.port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={self.data}", "fsync=off", "shared_buffers=16MB"]
        command = [program("postgres"), "-D", self.data / "data", *(part for each in settings for part in ("-c", each))]
        until("PostgreSQL is ready", lambda: self.is_ready(command), 60)

    def is_ready(self, command):
        if self.process is None or self.process.poll() is not None:
            self.process = spawn([*self.user, *command], self.folder / "postgres.log", cwd="/")
        ready = [program("pg_isready"), "-q", "-U", "judge", "-d", "postgres", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def psql(self):
        return [program("psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "judge", "-d", "postgres", "-h", "127.0.0.1", f"-p{self.port}"]

    def run_sql(self, text):
        done = subprocess.run(self.psql(), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{text[:200]}: {done.stderr}")
        return done.stdout.strip()

    def put(self, key, state):
        note = "'" + state["note"] + "'" if "note" in state else "NULL"
        changed = "ON CONFLICT (key) DO UPDATE SET n = excluded.n, note = excluded.note, version = excluded.version RETURNING row_to_json(shop)"
        return json.loads(self.run_sql(f"INSERT INTO shop VALUES ('{key}', {state['n']}, {note}, nextval('versions')) {changed}"))

    def delete(self, key):
        self.run_sql(f"DELETE FROM shop WHERE key = '{key}'")

    def arguments(self):
        tls = f"?sslmode=verify-full&sslrootcert={self.secure.ca_file}" if self.secure else ""
        return ["--sql", f"postgres://reader@127.0.0.1:{self.wire.port}/postgres{tls}", "--query", self.QUERY, *self.SINCE]

    def close(self):
        self.wire.refuse()
        end(self.process, signal.SIGQUIT)
        shutil.rmtree(self.data, ignore_errors=True)


class PostgresSince(Postgres):
    SINCE, QUERY = ("--since", "version", "--relist", "2s"), "SELECT * FROM shop"


class Queue(Source):
    """A queue of another server, behind a proxy."""

    def start(self):
        (self.folder / "from").mkdir()
        self.server = Server(self.folder / "from", True, "source_token" in self.case.options)
        self.wire = Wire(self.server.port)
        self.token = self.folder / "from-token"
        self.token.write_text(self.server.token or "none")

    def put(self, key, state):
        self.server.call("POST", "from/update", state)
        return state

    def delete(self, key):
        self.server.call("POST", "from/delete", {"key": key})

    def arguments(self):
        return ["--from-queue", "from", "--from-url", self.url(self.wire.port), "--from-token-file", self.token, *self.authorities()]

    def close(self):
        self.wire.refuse()
        end(self.server.process)


class Kubernetes(Source):
    """An API server with the pods of a namespace: pages, watches, bookmarks, and WatchList in half of the runs."""

    def start(self):
        self.version, self.changes, self.snapshots, self.changed = 100, [], {}, threading.Condition()
        self.has_watch_list = self.rng.random() < 0.5
        self.web = Web(self.reply)
        self.web.token = "one"
        self.token = self.folder / "token"
        self.token.write_text("one")

    def event(self, kind, key, pod):
        with self.changed:
            self.version += 1
            pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
            (self.objects.pop(key) if kind == "DELETED" else self.objects.update({key: pod}))
            self.changes.append((self.version, kind, pod))
            self.changed.notify_all()
        return pod

    def put(self, key, state):
        spec = {name: value for name, value in state.items() if name != "key"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": key, "namespace": "shop"}, "spec": spec}
        return self.event("MODIFIED" if key in self.objects else "ADDED", key, pod)

    def delete(self, key):
        self.event("DELETED", key, self.objects[key])

    def arguments(self):
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"tokenFile": "token"}}]}
        config["contexts"] = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
        authority = {"certificate-authority": str(self.secure.ca_file)} if self.secure else {}
        config["clusters"] = [{"name": "c", "cluster": {"server": self.url(self.web.port), **authority}}]
        (self.folder / "kubeconfig").write_text(json.dumps(config))
        return ["--kubernetes", "/api/v1/namespaces/shop/pods", "--kubeconfig", self.folder / "kubeconfig"]

    def status(self, code):
        status = {"kind": "Status", "apiVersion": "v1", "code": code, "message": f"the judge says {code}"}
        return Reply(code, dumps(status), [JSON])

    def reply(self, request):
        query = request.query
        with self.changed:
            if query.get("watch") == "true":
                initial = query.get("sendInitialEvents") == "true"
                if initial and not self.has_watch_list:
                    return self.status(422)
                begin = self.version if initial else int(query["resourceVersion"])
                return Reply(200, b"", [JSON], self.watch(begin, list(self.objects.values()) if initial else None))
            if int(query.get("resourceVersion") or 0) > self.version:
                return self.status(504)
            if "continue" in query:
                version, request.page = map(int, query["continue"].split("."))
            else:
                version = self.version
                self.snapshots[version] = [{part: pod[part] for part in ("metadata", "spec")} for _, pod in sorted(self.objects.items())]
            pods = self.snapshots[version]
            behind = request.page + min(10, int(query["limit"])) if "limit" in query else len(pods)
            following = f"{version}.{behind}" if behind < len(pods) else ""
            listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": str(version), "continue": following}}
            listed["items"] = pods[request.page:behind]
            return Reply(200, dumps(listed), [JSON])

    def watch(self, version, initial):
        def line(kind, item):
            return dumps({"type": kind, "object": item}).encode() + b"\n"

        def bookmark(at, **more):
            return line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(at), **more}})

        def stream(client):
            at = version
            for pod in initial or []:
                client.sendall(line("ADDED", pod))
            if initial is not None:
                client.sendall(bookmark(at, annotations={"k8s.io/initial-events-end": "true"}))
            while True:
                with self.changed:
                    waiting = [change for change in self.changes if change[0] > at]
                    if not waiting:
                        self.changed.wait(1)
                for number, kind, pod in waiting:
                    client.sendall(line(kind, pod))
                    at = number
                client.sendall(bookmark(at))
        return stream

    def close(self):
        self.web.refuse()


KINDS = {"rest": Rest, "nginx": Nginx, "files": Files, "command": Command, "sqlite": Sqlite, "sqlite-since": SqliteSince, "postgres": Postgres,
         "postgres-since": PostgresSince, "queue": Queue, "kubernetes": Kubernetes}
