"""Faults of nginx, files, commands, databases, queues, Kubernetes, and of deltaq itself."""
import contextlib
import gzip
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
import urllib.request

from sources.http_faults import HTML, answer, cut, hold
from sources.real import Reply, abort, acknowledge, dumps, end, until
from sources.registry import DOWN, FREE, HIDDEN, PART, SHOWS_MAX, STALE, THROUGH, fault

# nginx.

@fault("nginx", shows=THROUGH, limit=90)
def rate_limit(case):
    case.source.configure("limit_req_zone $server_name zone=slow:1m rate=60r/m; limit_req_status 429;", "limit_req zone=slow; PROXY")
    yield
    case.source.configure()


@fault("nginx")
def origin_silent(case):
    case.source.web.meddle = lambda _request, _reply, client: client.recv(1)
    yield


@fault("nginx")
def origin_cuts(case):
    case.source.web.meddle = lambda request, reply, client: cut(close=None)(case, request, reply, client)
    yield


@fault("nginx", shows=STALE)
def stale_cache(case):
    """nginx goes on with its last pages while the origin is down."""
    case.source.configure("proxy_cache_use_stale error timeout http_502;")
    time.sleep(1.5)
    case.source.web.refuse()
    yield
    case.source.web.listen()
    case.source.configure()


@fault("nginx", shows=THROUGH)
def gzip_from_the_cache(case):
    """The origin and the cache do not distinguish clients that have asked for gzip, as another one does, from others."""
    asked, ended = set(), threading.Event()

    def meddle(request, reply, _client):
        asked.add(request.target)
        if reply.status == 200 and "gzip" in request.headers.get("accept-encoding", ""):
            return Reply(200, gzip.compress(reply.body), [*reply.headers, ("content-encoding", "gzip")])
        return reply

    def ask():
        while not ended.wait(0.1):
            for target in list(asked):
                with contextlib.suppress(OSError):
                    url, headers = f"http://127.0.0.1:{case.source.port}{target}", {"accept-encoding": "gzip", "authorization": "any"}
                    request = urllib.request.Request(url, headers=headers)
                    urllib.request.urlopen(request, timeout=5).close()
    case.source.web.meddle = meddle
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@fault("nginx")
def nginx_stopped(case):
    end(case.source.process, signal.SIGTERM)
    yield
    case.source.run()


@fault("nginx")
def maintenance(case):
    case.source.configure("", 'add_header Retry-After 1 always; return 503 "<html>back soon</html>";')
    yield
    case.source.configure()


@fault("nginx")
def origin_removed_from_configuration(case):
    case.source.configure("", "return 404;")
    yield
    case.source.configure()


# Files.

def broken_file(name, break_it):
    def begin(case):
        case.kept = {"k001": case.truth()["k001"]}
        break_it(case.source.file("k001"))
        yield
        case.put("k001")
    begin.__name__ = name
    fault("files", shows=PART, up=True)(begin)


broken_file("file_cut", lambda path: path.write_text(path.read_text()[:9]))
broken_file("file_empty", lambda path: path.write_text(""))
broken_file("file_not_utf8", lambda path: path.write_bytes(b'{"key":"k001","note":"\xff"}'))


@fault("files", shows=THROUGH)
def same_size_and_time(case):
    path, state = case.source.file("k001"), {"key": "k001", "n": 9}
    times, length = path.stat(), len(path.read_text())
    assert len(dumps(state)) == length
    path.write_text(dumps(state))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    case.history["k001"].append(state)
    yield


@fault("files", quiet=True)
@fault("files", quiet=True, at_start=True)
def folder_moved(case):
    case.source.path.rename(case.folder / "elsewhere")
    yield
    (case.folder / "elsewhere").rename(case.source.path)


@fault("files", quiet=True)
def folder_empty(case):
    """As a file system that is not mounted."""
    case.source.path.rename(case.folder / "elsewhere")
    case.source.path.mkdir()
    yield
    case.source.path.rmdir()
    (case.folder / "elsewhere").rename(case.source.path)


@fault("files", user=True)
def subfolder_without_permission(case):
    (case.source.path / "sub").chmod(0o000)
    yield
    (case.source.path / "sub").chmod(0o755)


@fault("files", user=True, shows=PART, up=True)
def file_without_permission(case):
    case.put("k001", note="secret")
    until("the file is read", lambda: case.latest() == case.truth(), SHOWS_MAX)
    case.kept = {"k001": case.truth()["k001"]}
    case.source.file("k001").chmod(0o000)
    yield
    case.source.file("k001").chmod(0o644)


@fault("files", shows=THROUGH)
def links_to_folders_above(case):
    (case.source.path / "sub" / "up").symlink_to("..")
    yield
    (case.source.path / "sub" / "up").unlink()


@fault("files")
def link_to_itself(case):
    (case.source.path / "self.json").symlink_to("self.json")
    yield
    (case.source.path / "self.json").unlink()


@fault("files", shows=FREE)
def key_in_two_files(case):
    (case.source.path / "other.json").write_text(dumps(case.truth()["k001"]))
    yield
    (case.source.path / "other.json").unlink()


# Commands.

def said(name, text, **options):
    def begin(case):
        case.source.say(text.replace("LIST", str(case.source.list)))
        yield
        case.source.say(f"exec cat {case.source.list}")
    begin.__name__ = name
    fault("command", **options)(begin)


said("exit_1_after_half", "head -c 250 LIST; exit 1")
said("exit_1_after_all", "cat LIST; exit 1")
said("half_a_line", "head -c 251 LIST")
said("half_of_the_lines", "head -n 8 LIST")
said("killed_by_a_signal", "cat LIST; kill -9 $$")
said("hangs", "cat LIST; sleep 60")
said("child_keeps_the_output", "cat LIST; sleep 60 &")
said("stderr_only", "cat LIST >&2; exit 1")
said("stderr_only_with_success", "cat LIST >&2")
said("warnings_on_stderr", "head -c 100000 /dev/zero >&2; cat LIST", shows=THROUGH)
said("text_before_the_list", "echo 'connecting ...'; cat LIST")
said("silent_success", "true")


@fault("command")
@fault("command", at_start=True)
def program_removed(case):
    case.source.script.rename(case.folder / "removed")
    yield
    (case.folder / "removed").rename(case.source.script)


# SQL.

DATABASES = ("postgres", "postgres-since", "pgbouncer", "pgbouncer-since")


@fault("sqlite", "sqlite-since", *DATABASES, quiet=True)
def table_renamed(case):
    case.source.run_sql("ALTER TABLE shop RENAME TO other")
    yield
    case.source.run_sql("ALTER TABLE other RENAME TO shop")


@fault("sqlite", "sqlite-since", *DATABASES, quiet=True)
def table_locked(case):
    if case.kind in DATABASES:
        lock = subprocess.Popen(case.source.psql(), stdin=subprocess.PIPE, text=True)
        lock.stdin.write("BEGIN; LOCK TABLE shop IN ACCESS EXCLUSIVE MODE;\n")
        lock.stdin.flush()
        yield
        lock.stdin.close()
        lock.wait()
    else:
        database = sqlite3.connect(case.source.path, isolation_level=None)
        database.execute("BEGIN EXCLUSIVE")
        yield
        database.execute("ROLLBACK")
        database.close()


@fault("sqlite", "sqlite-since", quiet=True)
def file_overwritten(case):
    kept = shutil.copy(case.source.path, case.folder / "kept.db")
    case.source.path.write_bytes(b"no database" * 100)
    yield
    os.rename(kept, case.source.path)


@fault("sqlite", "sqlite-since", quiet=True)
@fault("sqlite", quiet=True, at_start=True)
def file_moved(case):
    case.source.path.rename(case.folder / "moved.db")
    yield
    (case.folder / "moved.db").rename(case.source.path)


@fault("sqlite", "sqlite-since", *DATABASES, quiet=True)
def table_empty(case):
    source = case.source
    source.run_sql("CREATE TABLE kept AS SELECT * FROM shop")
    source.run_sql("DELETE FROM shop")
    yield
    source.run_sql("INSERT INTO shop SELECT * FROM kept")


@fault("postgres")
def connections_killed(case):
    loop = """DO $$ BEGIN LOOP
        PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader';
        PERFORM pg_stat_clear_snapshot(); PERFORM pg_sleep(0.01);
    END LOOP; END $$"""
    killer = subprocess.Popen([*case.source.psql(), "-c", loop], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield
    case.source.run_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %' AND pid <> pg_backend_pid()")
    end(killer)


@fault("postgres", "postgres-since")
def role_without_connections(case):
    case.source.run_sql("ALTER ROLE reader CONNECTION LIMIT 0")
    yield
    case.source.run_sql("ALTER ROLE reader CONNECTION LIMIT -1")


@fault(*DATABASES)
def permission_revoked(case):
    case.source.run_sql("REVOKE SELECT ON shop FROM reader")
    yield
    case.source.run_sql("GRANT SELECT ON shop TO reader")


@fault(*DATABASES, quiet=True)
def database_killed(case):
    end(case.source.process)
    yield
    case.source.run()


@fault(*DATABASES, "queue", limit=100)
def half_open_connection(case):
    """Packets are lost: no byte arrives, and no connection ends. A followed queue is silent for a time that a watch may be silent."""
    case.source.wire.mode = "silent"
    yield
    case.source.wire.mode = "pass"
    case.source.wire.cut_all()


@fault("postgres")
@fault("postgres-since", shows=FREE)
def connection_cut_in_the_rows(case):
    """A look for changes has the rows before the cut."""
    case.source.wire.mode = 900
    case.source.wire.cut_all()
    yield
    case.source.wire.mode = "pass"


@fault("sqlite-since", "postgres-since", "pgbouncer-since", shows=THROUGH)
def value_goes_back(case):
    """A change whose value is older than others, as of a slow transaction."""
    case.source.run_sql("UPDATE shop SET n = 7777, version = 1 WHERE key = 'k001'")
    state = {**case.truth()["k001"], "n": 7777, "version": 1}
    case.history["k001"].append(state)
    yield


# Another queue.

def follow_source(case):
    """What the followed queue has now is the truth."""
    found = case.source.server.latest("from")
    for key, states in case.history.items():
        if found.get(key) != states[-1]:
            states.append(found.get(key))


@fault("queue", shows=THROUGH)
def source_purged(case):
    acknowledge(case.source.server, "from")
    case.put("k001")
    until("the change has arrived", lambda: case.latest() == case.truth(), SHOWS_MAX)
    case.source.server.call("POST", "from/purge")
    follow_source(case)
    yield


@fault("queue", quiet=True, limit=100)
def source_deleted(case):
    server, objects = case.source.server, list(case.truth().values())
    server.call("DELETE", "from")
    yield
    server.call("POST", "from/add", objects)


@fault("queue", shows=THROUGH)
def source_deleted_and_created_again(case):
    server, objects = case.source.server, list(case.truth().values())
    server.call("DELETE", "from")
    server.call("POST", "from/add", objects)
    yield


@fault("queue", shows=THROUGH)
def source_killed_and_restarted(case):
    end(case.source.server.process)
    case.source.server.start()
    yield


@fault("queue", shows=THROUGH)
def source_restored_from_a_copy(case):
    server = case.source.server
    end(server.process)
    shutil.copytree(server.folder / "data", server.folder / "copy")
    server.start()
    case.put("k001")
    case.put("k002")
    until("the changes have arrived", lambda: case.latest() == case.truth(), SHOWS_MAX)
    restore(server)
    follow_source(case)
    yield


@fault("queue", shows=THROUGH)
def watch_cut(case):
    case.source.wire.cut_all()
    yield


def restore(server):
    end(server.process)
    shutil.rmtree(server.folder / "data")
    (server.folder / "copy").rename(server.folder / "data")
    server.start()


# Kubernetes.

EVENT_410 = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'


def watches(name, meddle, shows=THROUGH, **options):
    """Registers a fault of the watches alone, or of the lists as well."""
    def begin(case):
        case.source.web.meddle = lambda request, reply, client: meddle(case, request, reply, client)
        case.source.web.cut_all()
        yield
        case.source.web.cut_all()
    begin.__name__ = name
    fault("kubernetes", shows=shows, **options)(begin)


def only_lists(body):
    return lambda case, _request, reply, _client: case.source.status(410) if reply.stream else Reply(200, body)


def of_watch(replace):
    return lambda case, request, reply, client: replace(case, request, reply, client) if reply.stream else reply


def cut_lines(_case, request, reply, client):
    """Each connection breaks in the middle of its second change."""
    sent, is_begun = [], ["sendInitialEvents" not in request.query]

    def sendall(_self, data):
        if is_begun[0]:
            sent.append(data)
            if len(sent) == 2:
                client.sendall(data[:len(data) // 2])
                abort(client)
                raise OSError
        is_begun[0] = is_begun[0] or b"initial-events-end" in data
        client.sendall(data)
    stream = reply.stream
    reply.stream = lambda _client: stream(type("Cut", (), {"sendall": sendall})())
    return reply


for status in (500, 503, 429):
    watches(f"api_status_{status}", answer(status, "{}"), shows=HIDDEN)
for status in (403, 410, 504):
    watches(f"watch_status_{status}", of_watch(lambda case, _request, _reply, _client, status=status: case.source.status(status)))
watches("watch_expired_event",
        of_watch(lambda _case, _request, _reply, _client: Reply(200, "", stream=lambda client: client.sendall(EVENT_410))))
watches("watch_ends_at_once", of_watch(lambda _case, _request, _reply, _client: Reply(200, "", stream=lambda _client: None)))
watches("watch_line_cut", of_watch(cut_lines))
watches("api_html_with_200", answer(200, HTML, [("content-type", "text/html")]), shows=HIDDEN)
watches("api_silent", hold, shows=HIDDEN)
watches("list_without_items", only_lists('{"kind":"PodList","metadata":{"resourceVersion":"9"}}'), shows=HIDDEN)
watches("list_empty_by_mistake", only_lists('{"kind":"PodList","metadata":{"resourceVersion":"999"},"items":[]}'), shows=HIDDEN)
watches("pages_expire",
        lambda case, request, reply, _client: case.source.status(410) if reply.stream or "continue" in request.query else reply)
watches("list_instead_of_a_watch",
        of_watch(lambda case, request, _reply, _client: (request.query.pop("watch"), case.source.reply(request))[1]))


@fault("kubernetes", shows=THROUGH)
def api_restored_from_a_copy(case):
    source, old = case.source, (case.source.version, dict(case.source.objects), list(case.source.changes))
    case.put("k001")
    case.put("k002")
    until("the changes have arrived", lambda: case.latest() == case.truth(), SHOWS_MAX)
    with source.changed:
        source.version, source.objects, source.changes = old
    for key in ("shop/k001", "shop/k002"):
        case.put_again(key)
    source.web.cut_all()
    # Before the versions of the lost time come back, which nobody can notice.
    until("the queue has gone back", lambda: case.latest() == case.truth(), SHOWS_MAX)
    yield


@fault("kubernetes", shows=THROUGH, limit=240)
def watch_half_open(case):
    """The watch stays open without a byte; it is given up after 150 s. Other connections work."""
    silent = threading.Event()

    def meddle(_request, reply, client):
        if reply.stream and not silent.is_set():
            silent.set()
            reply.stream = lambda _client: (client.settimeout(300), client.recv(1))
        return reply
    case.source.web.meddle = meddle
    case.source.web.cut_all()
    yield


# deltaq itself.

OWN = ("rest", "files", "sqlite-since", "queue", "kubernetes")


@fault(*OWN, shows=DOWN, store=True)
def server_killed_and_restarted(case):
    end(case.server.process)
    yield
    case.server.start()


@fault(*OWN, shows=DOWN, store=True)
def server_frozen(case):
    case.server.process.send_signal(signal.SIGSTOP)
    yield
    case.server.process.send_signal(signal.SIGCONT)


@fault(*OWN, shows=THROUGH)
def queue_deleted(case):
    case.new_life()
    case.server.call("DELETE", case.queue)
    yield


@fault(*OWN, shows=THROUGH, store=False)
def server_in_memory_restarted(case):
    case.new_life()
    end(case.server.process)
    case.server.start()
    yield


@fault(*OWN, shows=THROUGH, store=True)
def queue_restored_from_a_copy(case):
    case.drain()
    end(case.server.process)
    shutil.copytree(case.server.folder / "data", case.server.folder / "copy")
    case.server.start()
    case.change()
    until("the changes have arrived", lambda: case.latest() == case.truth(), SHOWS_MAX)
    restore(case.server)
    yield
