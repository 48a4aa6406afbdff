#!/usr/bin/env python3
"""Eight tenants share a server, each with a token for its own queues. One is hostile in every way at once: large adds to a queue with as many
followers as it may have, floods of large adds, watches that are not read, watches in vain, acks of large objects with indexes, histories of
absent keys, reads that wait, long errors of many small keys, many indexed values of small objects, long names. Measures the calls of the others without and with it.

    scripts/judge_tenants.py BINARY [SECONDS] [--memory MIB]

With --memory the server runs in a memory control group of this size (version 1, as root) and takes its limits from it.
Fails if the p99 of the others is more than 3 times as long (and more than 50 ms), a call of theirs is refused, the server uses more memory
than its limits add up to or is killed, or the files grow by more than 3 times the bytes that were sent."""
import argparse, base64, hashlib, http.client, json, multiprocessing, os, random, shutil, socket, subprocess, sys, tempfile, threading, time

TENANTS = 8
MEMORY_MAX_MIB = 1_500
REPLIES_MAX, BODIES_MAX, UNCOMMITTED_MAX = 64 << 20, 256 << 20, 64 << 20
# Compression must not make the flood smaller than it looks.
TEXT = base64.b64encode(random.Random(1).randbytes(750_000)).decode()
LARGE = json.dumps({"x": TEXT}).encode()
GROUPS = "/sys/fs/cgroup/memory"
ARRAY = b'{"a":[' + b",".join([b"0"] * 400_000) + b"]}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Group:
    """A memory control group. Its processes are killed when they need more than `mib`."""

    def __init__(self, mib):
        self.path = os.path.join(GROUPS, f"deltaq-tenants-{os.getpid()}")
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes", mib << 20)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())


class Server:
    def __init__(self, binary, folder, group):
        self.port, self.data = free_port(), os.path.join(folder, "data")
        tokens = "".join(
            f'[[tokens]]\nname = "t{n}"\nsha256 = "{hashlib.sha256(f"t{n}".encode()).hexdigest()}"\n'
            f'grants = [{{ verbs = ["admin", "produce", "consume", "read"], queues = ["t{n}-*"] }}]\n'
            for n in range(TENANTS))
        path = os.path.join(folder, "tokens.toml")
        with open(path, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(tokens)
        config = os.path.join(folder, "deltaq.toml")
        limits = (f"max_reply_bytes_in_flight = {REPLIES_MAX}\nmax_body_bytes_in_flight = {BODIES_MAX}\n"
                  f"[storage]\nmax_uncommitted_bytes = {UNCOMMITTED_MAX}\n")
        with open(config, "w") as file:
            file.write(
                f'[server]\nlisten = "127.0.0.1:{self.port}"\nmetrics_listen = "127.0.0.1:{free_port()}"\n'
                f'{"" if group else limits}[access]\ntokens_file = "{path}"\n')
        self.process = subprocess.Popen([binary, "serve", "--config", config, "--data-dir", self.data, "--log-level", "error"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=group and group.enter)
        while True:
            try:
                if call(self, None, "GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                raise SystemExit("the server has ended")
            time.sleep(0.05)

    def memory_mib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM:"))

    def disk(self):
        return sum(entry.stat().st_size for entry in os.scandir(self.data) if entry.is_file())


def call(server, tenant, method, path, body=None, connection=None, kind="application/json"):
    made = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    headers = {} if tenant is None else {"authorization": f"Bearer t{tenant}"}
    made.request(method, path, body, headers | ({"content-type": kind} if body else {}))
    reply = made.getresponse()
    text = reply.read()
    if connection is None:
        made.close()
    return reply.status, text


class Others:
    """The seven other tenants: each adds, pops and acks on a queue of its own."""

    def __init__(self, server):
        self.server, self.ends, self.took, self.refused = server, False, [], []
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(1, TENANTS)]

    def run(self, tenant):
        queue = f"/v1/queues/t{tenant}-own"
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        while not self.ends:
            leases = []
            for method, path, body in (("POST", f"{queue}/add?key=k{random.randrange(100)}", {"n": 1}), ("POST", f"{queue}/pop?max=10", {}),
                                       ("POST", f"{queue}/ack", leases), ("GET", f"{queue}/status", None)):
                body = {"lease_ids": list(leases)} if body is leases else body
                begun = time.monotonic()
                status, text = call(self.server, tenant, method, path, body, connection)
                self.took.append(time.monotonic() - begun)
                if status != 200:
                    self.refused.append((status, json.loads(text).get("code")))
                elif path.endswith("max=10"):
                    leases += [item["lease"]["id"] for item in json.loads(text)["items"]]
            time.sleep(0.02)

    def measure(self, seconds):
        self.took.clear()
        time.sleep(seconds)
        took = sorted(self.took)
        return took[int(len(took) * 0.99)], len(took)


class Hostile:
    def __init__(self, server):
        self.server, self.sockets = server, []
        self.sent = multiprocessing.Value("q")
        put = lambda name, settings: call(server, 0, "PUT", f"/v1/queues/t0-{name}", settings)[0]
        put("followed", {})
        self.followers = sum(put(f"f{n}", {"follow": {"queue": "t0-followed"}}) == 201 for n in range(300))
        put("indexed", {"indexes": {f"i{n}": f"/a/{10**9 + n}" for n in range(16)}})
        put("past", {"retention": {"bytes": 1 << 30}})
        put("flood", {})
        put("errors", {"max_failures": 0})
        put("tagged", {"indexes": {f"i{n}": "/tags" for n in range(16)}})
        put("names", {"mode": "events"})
        for part in range(8):
            lines = "".join(json.dumps({"key": f"k{n}", "o": TEXT[n * 50:][:1000], "part": part}) + "\n" for n in range(10_000)).encode()
            status, text = call(server, 0, "POST", "/v1/queues/t0-past/update", lines, kind="application/x-ndjson")
            self.count(len(lines))
            self.first = getattr(self, "first", json.loads(text)["resource_version"])

    def count(self, sent):
        with self.sent.get_lock():
            self.sent.value += sent

    def begin(self):
        """Acts in processes of its own, so that the others do not wait for the interpreter."""
        self.processes = [multiprocessing.Process(target=self.act, args=(part,), daemon=True) for part in range(2)]
        for process in self.processes:
            process.start()

    def end(self):
        for process in self.processes:
            process.kill()
            process.join()

    def act(self, part):
        threads = []
        for act, count in ((self.fan_out, 2), (self.flood, 8), (self.ack, 2), (self.watch_too_far_back, 8), (self.watch_in_vain, 8),
                           (self.history, 8), (self.wait, 16), (self.unread, 1), (self.fail, 2), (self.tag, 2), (self.name, 2)):
            threads += [threading.Thread(target=self.again, args=(act, n)) for n in range(part, count, 2)]
        for thread in threads:
            thread.start()

    def again(self, act, number):
        turn = 0
        while True:
            try:
                act(number, turn)
            except (OSError, http.client.HTTPException):
                pass
            turn += 1

    def add(self, queue, key, body):
        if call(self.server, 0, "POST", f"/v1/queues/t0-{queue}/add?key={key}", body)[0] == 200:
            self.count(len(body))
        else:
            time.sleep(0.05)

    def fan_out(self, number, turn):
        self.add("followed", f"k{number}-{turn % 4}", LARGE)
        time.sleep(2)

    def flood(self, number, turn):
        self.add("flood", f"k{number}", LARGE)

    def ack(self, number, turn):
        for key in range(8):
            self.add("indexed", f"k{number}-{key}", ARRAY)
        status, text = call(self.server, 0, "POST", "/v1/queues/t0-indexed/pop?max=8", {})
        leases = [item["lease"]["id"] for item in json.loads(text).get("items", [])]
        call(self.server, 0, "POST", "/v1/queues/t0-indexed/ack", {"lease_ids": leases})

    def watch(self, query):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("GET", f"/v1/queues/t0-past/watch?{query}", None, {"authorization": "Bearer t0", "accept": "application/json"})
        connection.getresponse().read()
        connection.close()

    def watch_too_far_back(self, number, turn):
        self.watch(f"resource_version={self.first + number * 1000 + turn}&limit=1")

    def watch_in_vain(self, number, turn):
        self.watch("prefix=absent&limit=1")

    def history(self, number, turn):
        call(self.server, 0, "GET", f"/v1/queues/t0-past/history?key=absent{number}")

    def wait(self, number, turn):
        call(self.server, 0, "GET", f"/v1/queues/t0-past/synced?resource_version={10**14}&wait=1s")
        time.sleep(0.1)

    def add_lines(self, queue, lines, query=""):
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        if call(self.server, 0, "POST", f"/v1/queues/t0-{queue}/add{query}", body, kind="application/x-ndjson")[0] == 200:
            self.count(len(body))

    def settle(self, queue, verb, options):
        status, text = call(self.server, 0, "POST", f"/v1/queues/t0-{queue}/pop?max=1000&worker=w{'w' * 200}&id=p{random.random()}{'p' * 200}", {})
        leases = [item["lease"]["id"] for item in json.loads(text).get("items", [])]
        body = json.dumps({"lease_ids": leases, **options}).encode()
        if leases and call(self.server, 0, "POST", f"/v1/queues/t0-{queue}/{verb}", body)[0] == 200:
            self.count(len(body))

    def fail(self, number, turn):
        self.add_lines("errors", [{"key": f"k{number}-{turn}-{n}"} for n in range(1000)])
        self.settle("errors", "nack", {"delay": "1h", "error": f"{turn}" + "e" * 4000})

    def tag(self, number, turn):
        tags = [f"{turn % 10000}x{n}" for n in range(100)]
        self.add_lines("tagged", [{"key": f"k{number}-{turn}-{n}", "tags": [f"{n}{tag}" for tag in tags]} for n in range(50)])
        self.settle("tagged", "ack", {})

    def name(self, number, turn):
        for part in range(20):
            self.add_lines("names", [{"key": f"k{number}", "n": n} for n in range(50)], f"?source={'s' * 240}{number}-{turn % 100}-{part}")

    def unread(self, number, turn):
        if turn < 200:
            unread = socket.socket()
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.connect(("127.0.0.1", self.server.port))
            unread.sendall(b"GET /v1/queues/t0-flood/watch HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer t0\r\n\r\n")
            self.sockets.append(unread)
        else:
            time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=os.path.abspath)
    parser.add_argument("seconds", type=float, nargs="?", default=15)
    parser.add_argument("--memory", type=int, metavar="MIB")
    options = parser.parse_args()
    seconds = options.seconds
    folder = tempfile.mkdtemp(prefix="deltaq-tenants-")
    group = Group(options.memory) if options.memory else None
    server = Server(options.binary, folder, group)
    try:
        others, hostile = Others(server), Hostile(server)
        for n in range(1, TENANTS):
            call(server, n, "PUT", f"/v1/queues/t{n}-own", {})
        for thread in others.threads:
            thread.start()
        others.measure(2)
        alone, calls = others.measure(seconds)
        print(f"without the hostile tenant: p99 {alone * 1000:.1f} ms of {calls} calls; refused {others.refused}", flush=True)
        others.refused.clear()
        before, sent = server.disk(), hostile.sent.value
        hostile.begin()
        beside, calls = others.measure(seconds)
        others.ends = True
        for thread in others.threads:
            thread.join()
        hostile.end()
        if server.process.poll() is not None:
            raise SystemExit(f"FAILED: the server has ended with {server.process.returncode}")
        grown, sent = server.disk() - before, hostile.sent.value - sent
        print(f"with it: p99 {beside * 1000:.1f} ms of {calls} calls; refused {sorted(set(others.refused))}; memory {server.memory_mib():.0f} MiB; "
              f"{hostile.followers} followers; {sent / 1e6:.0f} MB sent, files grew by {grown / 1e6:.0f} MB")
        failures = [text for text, is_bad in (
            ("the p99 of the others", beside > max(3 * alone, 0.05)),
            ("calls of the others were refused", bool(others.refused)),
            ("memory", server.memory_mib() > MEMORY_MAX_MIB),
            ("files", grown > 3 * sent),
        ) if is_bad]
        print("FAILED: " + ", ".join(failures) if failures else "held")
        sys.exit(bool(failures))
    finally:
        server.process.kill()
        server.process.wait()
        if group:
            os.rmdir(group.path)
        shutil.rmtree(folder, ignore_errors=True)


main()
