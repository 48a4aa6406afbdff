#!/usr/bin/env python3
# fleet.py [--workers 3] [--keys 50] [--rounds 6]: replaces a fleet of workers one by one while changes arrive, and counts what was lost or done twice.
import argparse, os, signal, sqlite3, subprocess, sys, tempfile, time
from deltaq import Client, Worker

URL = os.environ.get("DELTAQ_URL", "http://localhost:7070")
QUEUE = "fleet"


def work(path):
    """A worker. Its writes have the fencing token: a row with a newer token is not overwritten."""

    def handle(item, context):
        time.sleep(0.005)
        context.raise_if_lost()
        database = sqlite3.connect(path, timeout=30)
        with database:
            for delta in item.deltas:
                database.execute("INSERT INTO work VALUES (?, ?, ?)", [item.key, delta.resource_version, os.getpid()])
            database.execute(
                "INSERT INTO state VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE SET token = ?2, n = ?3 WHERE token < ?2",
                [item.key, context.token, item.object["n"]],
            )
        database.close()

    Worker(Client(URL).queue(QUEUE), handle, concurrency=2, batch=4).run()


def replace_one(fleet, path):
    """A rolling restart: the new worker starts before the old one is stopped."""
    fleet.append(start(path))
    old = fleet.pop(0)
    old.send_signal(signal.SIGTERM)
    if old.wait(60) != 0:
        sys.exit(f"a worker ended with status {old.returncode}")


def start(path):
    """Starts a worker, and waits until it is ready to be stopped."""
    environment = os.environ | {"FLEET_DATABASE": path}
    worker = subprocess.Popen([sys.executable, __file__], env=environment)
    marker = f"-{worker.pid}-"
    while not any(marker in (entry["worker"] or "") for entry in Client(URL).queue(QUEUE).workers().items):
        if worker.poll() is not None:
            sys.exit(f"a worker did not start: status {worker.returncode}")
        time.sleep(0.01)
    return worker


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keys", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    queue = Client(URL).queue(QUEUE)
    queue.put_settings()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "target.db")
        database = sqlite3.connect(path)
        database.executescript(
            "PRAGMA journal_mode = WAL; CREATE TABLE work (key TEXT, version INTEGER, worker INTEGER);"
            "CREATE TABLE state (key TEXT PRIMARY KEY, token INTEGER, n INTEGER);"
        )
        fleet = [start(path) for _ in range(options.workers)]
        for n in range(options.rounds):
            queue.update([{"key": f"k{key}", "n": n} for key in range(options.keys)])
            replace_one(fleet, path)
        last = queue.update({"key": "k0", "n": options.rounds - 1}).resource_version
        while not queue.synced(resource_version=last, wait=30).reached:
            print("waiting for the workers", file=sys.stderr)
        for worker in fleet:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        changes = options.keys * options.rounds + 1
        done, different = database.execute("SELECT count(*), count(DISTINCT version) FROM work").fetchone()
        right = database.execute("SELECT count(*) FROM state WHERE n = ?", [options.rounds - 1]).fetchone()[0]
        workers = database.execute("SELECT count(DISTINCT worker) FROM work").fetchone()[0]
        database.close()
    print(f"{changes} changes, {workers} workers, {options.rounds} restarts: {changes - different} lost, {done - different} done twice")
    sys.exit(0 if done == different == changes and right == options.keys else 1)


if __name__ == "__main__":
    if "FLEET_DATABASE" in os.environ:
        work(os.environ["FLEET_DATABASE"])
    else:
        main()
