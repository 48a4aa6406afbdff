"""Faults of certificates, tokens and a pooler of connections, and sources beside another one in the same file."""
import subprocess
import time

from sources.http_faults import MANY, hold
from sources.real import JSON, Reply, Web, Wrong, end, until
from sources.registry import DOWN, FREE, SHOWS_MAX, THROUGH, fault

# Certificates.

def certificates(name, served, clue="certificate", **options):
    """Registers a fault of the certificate of the server. It ends with another file of authorities, or with the good certificate."""
    def begin(case):
        case.source.secure.serve(served)
        yield
        if served == "other":
            case.source.secure.trust(2)
        else:
            case.source.secure.serve("good")
    begin.__name__ = name
    fault("rest", "kubernetes", "queue", "postgres", tls=True, clue=clue, **options)(begin)


certificates("certificate_renewed", "renewed", clue="", shows=THROUGH)
certificates("authority_replaced", "other")
certificates("authority_replaced", "other", at_start=True)
certificates("certificate_expired", "expired")
certificates("certificate_of_another_name", "wrong_name")
certificates("no_tls_any_more", "plain", clue="")


# Tokens.

@fault("queue", source_token=True, limit=100, clue="unauthorized")
def token_of_the_source_replaced(case):
    token = case.source.server.rotate()
    case.source.wire.cut_all()
    yield
    case.source.token.write_text(token)


@fault("queue", source_token=True, shows=THROUGH)
def token_of_the_source_replaced_in_time(case):
    case.source.server.rotate(before=case.source.token.write_text)
    case.source.wire.cut_all()
    yield


OWN = ("rest", "files", "sqlite-since", "queue", "kubernetes")


@fault(*OWN, shows=DOWN, store=False, own_token=True)
def own_token_replaced(case):
    token = case.server.rotate()
    yield
    until("up is 0 while the server refuses the token", lambda: case.up() == 0, SHOWS_MAX)
    case.token.write_text(token)


@fault(*OWN, shows=THROUGH, store=False, own_token=True)
def own_token_replaced_in_time(case):
    case.server.rotate(before=case.token.write_text)
    yield
    if failures := case.metric("failures_total"):
        raise Wrong(f"{failures:.0f} calls have failed, although the file had the new token")


# PgBouncer.

POOLED = ("pgbouncer", "pgbouncer-since")


@fault(*POOLED)
@fault("pgbouncer", at_start=True)
def pooler_killed(case):
    end(case.source.pooler)
    yield
    case.source.pool()


@fault(*POOLED)
def pool_paused(case):
    case.source.admin("PAUSE")
    yield
    case.source.admin("RESUME")


@fault(*POOLED)
def pool_used_up(case):
    """Another client is in a transaction, on the only connection of the pool."""
    arguments = ["psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(case.source.pooler_port), "-U", "reader", "-d", "postgres"]
    other = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    other.stdin.write("BEGIN;\nSELECT 1;\n")
    other.stdin.flush()
    other.stdout.readline()
    yield
    other.stdin.close()
    other.wait()


@fault(*POOLED, shows=THROUGH)
def pooled_connection_killed(case):
    case.source.run_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'")
    yield


# Two readings.

@fault("rest", "command", shows=FREE, pages=MANY)
def two_readings_that_lack_different_keys(case):
    """Each list lacks other keys than the list before it."""
    if case.kind == "command":
        halves = "{ [ $((n % 2)) = 0 ] && head -n 15 || tail -n 15; } < list"
        case.source.say(f"cd {case.folder}; n=$(($(cat count 2> /dev/null) + 1)); echo $n > count; {halves}")
    else:
        lists = [0]

        def change(page, items):
            lists[0] += page == 0
            return items[:2] if (page == 0) == (lists[0] % 2 == 1) else items
        case.source.edit = change
    yield
    if case.kind == "command":
        case.source.say(f"exec cat {case.source.list}")


# Several sources in one file.

class Beside:
    """Another source in the file of the judged one. `break_it` lets it fail until `repair`."""

    def __init__(self, folder):
        self.folder = folder / "beside"
        self.folder.mkdir()

    def close(self):
        pass


class BesideRest(Beside):
    def __init__(self, folder):
        super().__init__(folder)
        self.web = Web(lambda _request: Reply(200, '[{"key":"a"}]', [JSON]))
        self.table = {"rest": {"list": f"http://127.0.0.1:{self.web.port}/list"}}

    def close(self):
        self.web.refuse()


class Refused(BesideRest):
    def break_it(self):
        self.web.refuse()

    def repair(self):
        self.web.listen()


class Silent(BesideRest):
    def break_it(self):
        self.web.meddle = lambda request, reply, client: hold(None, request, reply, client)

    def repair(self):
        self.web.meddle = None


class Hanging(Beside):
    """A command that takes the processor and never ends."""

    def __init__(self, folder):
        super().__init__(folder)
        self.table = {"command": {"run": ["/bin/sh", str(self.folder / "dump")]}}
        self.repair()

    def say(self, text):
        (partial := self.folder / "dump.partial").write_text(text)
        partial.rename(self.folder / "dump")

    def break_it(self):
        self.say("while :; do :; done")

    def repair(self):
        self.say("""echo '{"key":"a"}'""")


class Missing(Beside):
    """A folder that is moved away."""

    def __init__(self, folder):
        super().__init__(folder)
        (files := self.folder / "files").mkdir()
        (files / "a.json").write_text('{"key":"a"}')
        self.table = {"files": {"path": str(files)}}

    def break_it(self):
        (self.folder / "files").rename(self.folder / "away")

    def repair(self):
        (self.folder / "away").rename(self.folder / "files")


def beside(name, kind, **options):
    """Registers a fault of the other source of a file. The judged source goes on, and each says how it is."""
    def begin(case):
        case.beside.break_it()
        yield
        until("the other source is not up", lambda: case.plant != "beside" and case.metric("up", "beside") == 0, 30)
        if case.up() != 1:
            raise Wrong("up is 0 although only the other source fails")
        ready = case.page("/readyz")[1]
        if case.options.get("at_start") and ("beside" not in ready or "judge" in ready):
            raise Wrong(f"readyz says {ready!r} while only the other source has no list")
        case.beside.repair()
        until("the other source is up", lambda: case.metric("up", "beside") == 1, SHOWS_MAX)
        time.sleep(0.3)
    begin.__name__ = name
    fault("rest", "files", "sqlite", pages=("link",), shows=THROUGH, beside=kind, **options)(begin)


for kind in (Refused, Silent, Hanging, Missing):
    beside(f"beside_one_that_is_{kind.__name__.lower()}", kind)
    beside(f"beside_one_that_is_{kind.__name__.lower()}", kind, at_start=True, ready=503)
