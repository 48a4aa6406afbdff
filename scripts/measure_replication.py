#!/usr/bin/env python3
"""Measures how long a change of a table of PostgreSQL takes from its COMMIT to the reply of a waiting pop, by `deltaq reflect --replicate` and by polls
(`--sql --since`). Prints a table in Markdown.

    scripts/measure_replication.py BINARY [--commits 300] [--gap-ms 100] [--noise-rows 0] [--polls]

--noise-rows writes so many rows a second to another table of the database meanwhile. The time begins before the statement is sent, which commits by
itself, without fsync. The processor times are those of the database's session of the reflector, and of the reflector itself. A server without a store answers pops.
"""
import argparse
import glob
import http.client
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def as_user(command):
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return command
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--", *command]


class Database:
    def __init__(self, folder):
        self.folder, programs = folder, max(glob.glob("/usr/lib/postgresql/*/bin"))
        self.psql = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-h", folder, "-d", "postgres"]
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        subprocess.run(as_user([f"{programs}/initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-D", f"{folder}/data"]), check=True, stdout=subprocess.DEVNULL)
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "wal_level=logical", "log_min_messages=error", "fsync=off"]
        command = [f"{programs}/postgres", "-D", f"{folder}/data", *(part for setting in settings for part in ("-c", setting))]
        self.process = subprocess.Popen(as_user(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while subprocess.run(["pg_isready", "-q", "-h", folder], check=False).returncode:
            time.sleep(0.05)

    def sql(self, text):
        return subprocess.run([*self.psql, "-c", text], check=True, capture_output=True, text=True).stdout.strip()

    def session(self):
        return subprocess.Popen(self.psql, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def url(self):
        return f"postgres://postgres@localhost/postgres?host={self.folder}"


class Arrivals(threading.Thread):
    """Pops and acknowledges, and notes when each value has arrived."""

    def __init__(self, port, queue):
        super().__init__(daemon=True)
        self.port, self.queue, self.at, self.is_done = port, queue, {}, False

    def run(self):
        connection, settle = http.client.HTTPConnection("127.0.0.1", self.port), []
        while not self.is_done:
            body = json.dumps({"settle": settle})
            connection.request("POST", f"/v1/queues/{self.queue}/pop?wait=5s&max=100", body, {"content-type": "application/json"})
            reply = json.loads(connection.getresponse().read())
            now = time.monotonic()
            for item in reply["items"]:
                for delta in item["deltas"]:
                    self.at.setdefault((delta.get("object") or {}).get("n"), now)
            settle = [{"lease_id": item["lease"]["id"], "as": "ack"} for item in reply["items"]]


def cpu_seconds(pid):
    """0 for a process that has ended, such as the session of a poll that has reconnected: then its share is too small."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(arguments, database, port, queue, line):
    """The delays in milliseconds, sorted, and the share of a processor of the database's sessions and of the reflector."""
    command = [arguments.binary, "reflect", queue, "--source", "s", *line, "--log-level", "warn"]
    reflector = subprocess.Popen(command, env={**os.environ, "DELTAQ_URL": f"127.0.0.1:{port}"})
    arrivals, writer, sent = Arrivals(port, queue), database.session(), {}
    try:
        first = http.client.HTTPConnection("127.0.0.1", port)
        while True:
            first.request("GET", f"/v1/queues/{queue}")
            reply = first.getresponse()
            if json.loads(reply.read())["status"] != 404 and reply.status == 200:
                break
            time.sleep(0.05)
        arrivals.start()
        time.sleep(1)
        backends = [int(pid) for pid in database.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state IS NOT NULL AND query !~ 'noise'").split()]
        before, began = [sum(map(cpu_seconds, pids)) for pids in (backends, [reflector.pid])], time.monotonic()
        for number in range(1, arguments.commits + 1):
            sent[number] = time.monotonic()
            writer.stdin.write(f"UPDATE t SET n = {number}, updated_at = clock_timestamp() WHERE id = 1;\n")
            writer.stdin.flush()
            while number not in arrivals.at and time.monotonic() < sent[number] + 30:
                time.sleep(0.0005)
            time.sleep(random.uniform(0.5, 1.5) * arguments.gap_ms / 1000)
        after, took = [sum(map(cpu_seconds, pids)) for pids in (backends, [reflector.pid])], time.monotonic() - began
        shares = [(after - before) / took for before, after in zip(before, after)]
        return sorted((arrivals.at[number] - sent[number]) * 1000 for number in sent), shares
    finally:
        arrivals.is_done = True
        writer.kill()
        reflector.terminate()
        reflector.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--gap-ms", type=float, default=100)
    parser.add_argument("--noise-rows", type=int, default=0)
    parser.add_argument("--polls", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="deltaq-replication-") as folder:
        os.chmod(folder, 0o755)
        database = Database(folder)
        server = subprocess.Popen([arguments.binary, "serve", "--in-memory", "--listen", "127.0.0.1:0", "--metrics-listen", ""],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        processes = [server, database.process]
        try:
            port = next(int(json.loads(line)["api"].rpartition(":")[2]) for line in server.stderr if '"api"' in line)
            threading.Thread(target=server.stderr.read, daemon=True).start()
            database.sql("CREATE TABLE t (id int PRIMARY KEY, n int, updated_at timestamptz DEFAULT now()); INSERT INTO t VALUES (1, 0); CREATE TABLE noise (t text)")
            if arguments.noise_rows:
                # Twenty statements a second.
                noise = database.session()
                processes.insert(0, noise)
                noise.stdin.write(f"INSERT INTO noise SELECT md5(g::text) FROM generate_series(1, {max(1, arguments.noise_rows // 20)}) g \\watch 0.05\n")
                noise.stdin.flush()
                threading.Thread(target=noise.stdout.read, daemon=True).start()
            kinds = [("--replicate", ["--replicate", database.url(), "--table", "public.t"])]
            query = ["--sql", database.url(), "--query", "SELECT id AS key, t.* FROM t", "--since", "updated_at"]
            kinds += [(f"--sql --since, --interval {interval}", [*query, "--interval", interval]) for interval in ("1s", "100ms") if arguments.polls]
            print("| | p50 | p90 | p99 | CPU of the database's sessions | CPU of the reflector |\n|---|---|---|---|---|---|")
            for number, (name, line) in enumerate(kinds):
                delays, (database_share, reflector_share) = measure(arguments, database, port, f"q{number}", line)
                quantiles = [f"{delays[int(len(delays) * share)]:.1f} ms" for share in (0.5, 0.9, 0.99)]
                print(f"| {name} | {' | '.join(quantiles)} | {database_share:.1%} | {reflector_share:.1%} |", flush=True)
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait()


main()
