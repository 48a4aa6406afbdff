#!/usr/bin/env python3
"""A thousand queues of one server push, each to an endpoint of its own, and ten of the endpoints are dead: two refuse connections, two never answer,
two close (before the answer and in the middle of it), two answer 500, two answer a byte per second (the head, or the body). Measures how fast
the changes of the others arrive while the ten work (rounds A) and while they are dead (rounds B), under the same load, in turn.

    scripts/judge_endpoints.py BINARY [--rounds 5] [--seconds 10] [--rate 360] [--one-port]

The load has a fixed rate, and a time begins when the change should have been sent. Each sixth change is one of the ten queues, so each of them gets about 20
times as many as another one. Before each round all endpoints work and each queue gets changes, so that all rounds begin with the same connections, and
an endpoint that dies may have as many requests in flight as any. At the end 20 working endpoints get 100 keys each at once. With --one-port all
endpoints but those that refuse connections are paths of one port, as those of one provider are, and their connections are not judged.

Fails if the p99 of the others (the median of the rounds) is more than 1.2 times as long with dead endpoints, a queue lacks a change at the end, a queue
whose endpoint is dead is not `failing` or has parked a key, an endpoint has more connections than max_in_flight (16), connections stay, or the
queues need more than 64 KiB of memory each because they push. Takes 140 seconds."""
import argparse
import asyncio
import base64
import collections
import contextlib
import gc
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import selectors
import socket
import statistics
import sys
import tempfile
import time

from sources.real import Wrong, call, end, free_port, spawn, until

ENDPOINTS = 1_000
DEAD = ("refused", "refused", "silent", "silent", "closed", "cut", "500", "500", "slow head", "slow body")
# Each hundredth queue has one of the dead endpoints.
DEAD_AT = {50 + 100 * n: kind for n, kind in enumerate(DEAD)}
OTHERS = [n for n in range(ENDPOINTS) if n not in DEAD_AT]
# Each of so many changes is one of a queue with a dead endpoint.
SHARE = 6
KEYS, KEYS_OF_DEAD = 4, 40
TIMEOUT = "3s"
MAX_IN_FLIGHT = 16
CALLERS = 16
RATIO_MAX = 1.2
KIB_MAX = 64
# A connection is kept for 4 seconds, and looked at every 4 seconds.
STAYS_MAX = 12
QUIET_MAX = 20
# How long all may take, in seconds, and a round beside its load.
LIMIT, LIMIT_OF_ROUND = 30, 4.5
BURST_QUEUES, BURST_KEYS = 20, 100
# The journal has pages of up to 64 MiB in memory, for one queue as for a thousand. They are filled first.
FILLERS, FILLED, TEXTS = 4, 200, [base64.b64encode(random.Random(n).randbytes(3_000)).decode() for n in range(100)]


class Endpoint:
    """A port of the receiver. `kind` is how it behaves; without one it answers 204."""

    def __init__(self, endpoints, arrivals):
        self.endpoints, self.arrivals, self.kind = endpoints, arrivals, None
        # The port stays occupied while nobody listens on it.
        self.held = self.bound(0)
        self.port, self.server = self.held.getsockname()[1], None
        self.connections, self.most, self.requests = set(), 0, 0

    def bound(self, port):
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(("127.0.0.1", port))
        return bound

    def count(self):
        self.most = max(self.most, len(self.connections))

    async def behave(self, kind):
        was_refused = self.kind == "refused"
        self.kind = kind
        if kind == "refused":
            self.server.close()
            for connection in list(self.connections):
                connection.transport.abort()
        elif self.server is None or was_refused:
            self.server = await asyncio.get_running_loop().create_server(lambda: Connection(self), sock=self.bound(self.port), backlog=128)


class Connection(asyncio.Protocol):
    def __init__(self, endpoint):
        self.endpoint, self.buffer, self.transport = endpoint, b"", None

    def connection_made(self, transport):
        self.transport = transport
        self.endpoint.connections.add(self)
        # Those that the server has closed before are noted until then.
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self.endpoint.count)

    def connection_lost(self, _):
        self.endpoint.connections.discard(self)

    def data_received(self, data):
        at = time.monotonic_ns()
        self.buffer += data
        while (ends := self.buffer.find(b"\r\n\r\n") + 4) > 3:
            head = self.buffer[:ends].lower()
            ends += int(head.split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0])
            if len(self.buffer) < ends:
                return
            body, self.buffer = self.buffer[len(head):ends], self.buffer[ends:]
            self.answer(self.endpoint.endpoints[int(head.split(b"?", 1)[0].rsplit(b"/", 1)[1])], body, at)

    def answer(self, endpoint, body, at):
        kind = endpoint.kind
        endpoint.requests += 1
        if kind is None:
            self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            endpoint.arrivals.append((json.loads(body)["n"], at))
        elif kind == "closed":
            self.transport.close()
        elif kind == "cut":
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly the start")
            self.transport.close()
        elif kind == "500":
            self.transport.write(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
        elif kind == "slow head":
            self.drip(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        elif kind == "slow body":
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
            self.drip(b"x" * 100)

    def drip(self, left):
        if left and not self.transport.is_closing():
            self.transport.write(left[:1])
            asyncio.get_running_loop().call_later(1, self.drip, left[1:])


def receive(pipe):
    """The process of all endpoints."""
    gc.disable()
    asyncio.run(receiving(pipe))


async def receiving(pipe):
    arrivals, endpoints = [], []
    endpoints += [Endpoint(endpoints, arrivals) for _ in range(ENDPOINTS)]
    for endpoint in endpoints:
        await endpoint.behave(None)
    pipe.send([endpoint.port for endpoint in endpoints])
    commands = asyncio.Queue()
    asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: commands.put_nowait(pipe.recv()))
    while True:
        what, argument = await commands.get()
        if what == "behave":
            for number, kind in argument.items():
                await endpoints[number].behave(kind)
            pipe.send(None)
        elif what == "arrivals":
            pipe.send(arrivals)
            arrivals.clear()
        elif what == "most":
            pipe.send([endpoint.most for endpoint in endpoints])
            for endpoint in endpoints:
                endpoint.most = len(endpoint.connections)
        elif what == "requests":
            pipe.send([endpoint.requests for endpoint in endpoints])


def connections(ports):
    """The connections to each of these ports that the other side has, those included that the endpoint has closed."""
    found = collections.Counter()
    with open("/proc/net/tcp", "rb") as table:
        next(table)
        for row in table:
            _, _, remote, state, _ = row.split(None, 4)
            port = int(remote[9:], 16)
            if port in ports and state in (b"01", b"08"):
                found[port] += 1
    return found


def watch(ports, pipe):
    """The process that looks at the connections each second."""
    most, total = collections.Counter(), 0
    while True:
        found = connections(ports)
        most, total = most | found, max(total, found.total())
        if pipe.poll(1):
            pipe.recv()
            pipe.send((most, total))
            most, total = collections.Counter(), 0


class Process:
    def __init__(self, run, *arguments):
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=run, args=(*arguments, other), daemon=True)
        self.process.start()

    def ask(self, what=None, argument=None):
        self.pipe.send((what, argument))
        return self.pipe.recv()

    def close(self):
        self.process.kill()
        self.process.join()


class Callers:
    """Kept connections to the server. A call waits for a free one."""

    def __init__(self, port):
        self.port, self.free = port, asyncio.Queue()
        for _ in range(CALLERS):
            self.free.put_nowait(None)

    async def call(self, method, path, body):
        connection = await self.free.get()
        try:
            connection = connection or await asyncio.open_connection("127.0.0.1", self.port)
            reader, writer = connection
            writer.write(f"{method} /v1/queues/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
                         f"content-length: {len(body)}\r\n\r\n{body}".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            text = await reader.readexactly(int(head.split(b"\r\ncontent-length:", 1)[1].split(b"\r\n", 1)[0]))
        except BaseException:
            connection = None
            raise
        finally:
            self.free.put_nowait(connection)
        if not head.startswith(b"http/1.1 2"):
            raise Wrong(f"{method} {path}: {head.split()[1].decode()} {text.decode()[:300]}")
        return json.loads(text)

    async def calls(self, calls):
        return await asyncio.gather(*(self.call(method, path, json.dumps(body)) for method, path, body in calls))


def queue(number):
    return f"q{number:03}"


class Load:
    """Changes at a fixed rate, each with a number."""

    def __init__(self, callers):
        self.callers = callers
        self.numbers, self.late = itertools.count(), []
        # For each number the time at which it should be sent, its queue and its key.
        self.sent, self.last, self.arrived = [], {}, collections.defaultdict(list)
        self.others, self.dead = itertools.cycle(OTHERS), itertools.cycle(DEAD_AT)
        self.turns = collections.Counter()

    def change(self, at, number, keys):
        """A call for the next key of a queue."""
        n, key = next(self.numbers), self.turns[number] % keys
        self.turns[number] += 1
        self.sent.append((at, number, key))
        self.last[number, key] = n
        return "POST", f"{queue(number)}/add", {"key": f"k{key}", "n": n, "at": at}

    async def send(self, count, rate):
        """Sends so many changes, so many per second. Returns the numbers of the first one and of the one after the last one."""
        first, begun, calls = len(self.sent), time.monotonic_ns() + 1_000_000, set()
        for turn in range(count):
            at = begun + turn * 1_000_000_000 // rate
            await asyncio.sleep(max(0, at - time.monotonic_ns()) / 1e9)
            is_dead = turn % SHARE == SHARE - 1
            method, path, body = self.change(at, next(self.dead if is_dead else self.others), KEYS_OF_DEAD if is_dead else KEYS)
            self.late.append(time.monotonic_ns() - at)
            calls.add(asyncio.ensure_future(self.callers.call(method, path, json.dumps(body))))
            ended = {one for one in calls if one.done()} if len(calls) > CALLERS else set()
            calls -= ended
            await asyncio.gather(*ended)
        await asyncio.gather(*calls)
        return first, len(self.sent)

    def note(self, arrivals):
        for n, at in arrivals:
            _, number, key = self.sent[n]
            self.arrived[number, key].append((n, at))

    def lacks(self):
        """The keys whose newest change has not arrived."""
        return [place for place, n in self.last.items() if max(self.arrived[place], default=(-1,))[0] < n]

    def times(self, first, after):
        """How long these changes took, in ms, of the queues whose endpoints always work. One that a newer change of its key has replaced has arrived
        with that."""
        times = []
        for n in range(first, after):
            at, number, key = self.sent[n]
            if number not in DEAD_AT:
                times.append((min(arrival for other, arrival in self.arrived[number, key] if other >= n) - at) / 1e6)
        return sorted(times)


def part(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def memory_kib(pid, name="VmRSS"):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(f"{name}:"))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return sum(map(int, stat.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def machine():
    with open("/proc/loadavg") as loads:
        return loads.read().split()[0]


def table(most, numbers):
    """How many of these endpoints had how many connections at most."""
    counts = collections.Counter(most[number] for number in numbers)
    return ", ".join(f"{count}: {endpoints}" for count, endpoints in sorted(counts.items()))


class Judge:
    def __init__(self, options, server, port, receiver, watcher, ports):
        self.options, self.server, self.receiver, self.watcher, self.ports = options, server, receiver, watcher, ports
        self.callers = Callers(port)
        self.load = Load(self.callers)
        self.aims, self.failures, self.p99, self.most = 0, [], {"A": [], "B": []}, [0] * ENDPOINTS

    def check(self, is_bad, what):
        if is_bad:
            self.failures.append(what)

    def note_connections(self, most):
        if not self.options.one_port:
            self.most = list(map(max, self.most, most))

    async def aim(self, numbers):
        """Gives these queues another URL of their endpoint: its state begins anew."""
        self.aims += 1
        url = lambda number: f"http://127.0.0.1:{self.ports[number]}/e/{number}?{self.aims}"
        push = lambda number: {"url": url(number), "format": "raw", "timeout": TIMEOUT, "max_in_flight": MAX_IN_FLIGHT}
        await self.callers.calls([("PATCH", queue(number), {"push": push(number)}) for number in numbers])

    async def quiet(self):
        """Waits until the newest change of each key has arrived."""
        until_at = time.monotonic() + QUIET_MAX
        while True:
            self.load.note(self.receiver.ask("arrivals"))
            lacks = self.load.lacks()
            if not lacks:
                return await asyncio.sleep(0.3)
            if time.monotonic() > until_at:
                raise Wrong(f"{len(lacks)} keys lack their newest change {QUIET_MAX} s after the load, such as {lacks[:5]} (queue, key)")
            await asyncio.sleep(0.2)

    async def warm(self):
        await self.load.send(len(OTHERS) * SHARE // (SHARE - 1), 2 * self.options.rate)
        await self.quiet()

    async def round(self, kind):
        await self.warm()
        gc.collect()
        self.receiver.ask("behave", DEAD_AT if kind == "B" else {})
        self.watcher.ask()
        cpu, begun = cpu_seconds(self.server.pid), time.monotonic()
        self.load.late.clear()
        first, after = await self.load.send(int(self.options.rate * self.options.seconds), self.options.rate)
        cpu = (cpu_seconds(self.server.pid) - cpu) / (time.monotonic() - begun)
        late = sorted(self.load.late)
        states = await self.states() if kind == "B" else {}
        self.receiver.ask("behave", dict.fromkeys(DEAD_AT))
        await self.aim(DEAD_AT)
        await self.quiet()
        times = self.load.times(first, after)
        self.p99[kind].append(part(times, 0.99))
        seen, total = self.watcher.ask()
        seen, most = [seen[port] for port in self.ports], self.receiver.ask("most")
        self.note_connections(most)
        self.note_connections(seen)
        parts = ", ".join(f"{name} {part(times, share):.2f}" for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("longest", 1)))
        print(f"{kind}: {parts} ms of {len(times)} changes, the sender late by {part(late, 0.99) / 1e6:.2f} ms (p99); "
              f"the server used {cpu:.0%} of a core; load average {machine()}\n"
              f"   connections at most: {total} in all; of the others {table(most, OTHERS)}; of the ten {[most[number] for number in DEAD_AT]}", flush=True)
        return states

    async def states(self):
        documents = await self.callers.calls([("GET", f"{queue(number)}/status", None) for number in DEAD_AT])
        return dict(zip(DEAD_AT, documents, strict=True))

    def check_states(self, states):
        print("the queues with dead endpoints at the end of the last round:")
        for number, kind in DEAD_AT.items():
            status = states[number]
            push = status["push"]
            print(f"   {kind:9} {push['state']}, {push['in_flight']} in flight, {status['ready']} ready, {status['delayed']} delayed, "
                  f"{status['leased']} leased, {status['parked']} parked: {push['last_error']}")
            self.check(push["state"] != "failing", f"queue {number} ({kind}) is {push['state']}")
            self.check(status["parked"] > 0, f"queue {number} ({kind}) has {status['parked']} parked keys")

    async def burst(self):
        """Many keys at once for endpoints that work."""
        numbers = OTHERS[:BURST_QUEUES]
        self.receiver.ask("most")
        for number in numbers:
            changes = [self.load.change(time.monotonic_ns(), number, BURST_KEYS)[2] for _ in range(BURST_KEYS)]
            await self.callers.calls([("POST", f"{queue(number)}/add", changes)])
        await self.quiet()
        most = self.receiver.ask("most")
        print(f"{BURST_KEYS} keys at once for each of {BURST_QUEUES} endpoints: connections at most {table(most, numbers)}")
        self.note_connections(most)

    def gone(self):
        """Waits until all connections are closed."""
        last, ports = max(arrivals[-1][1] for arrivals in self.load.arrived.values()), set(self.ports)
        left = connections(ports)
        while left and time.monotonic_ns() < last + STAYS_MAX * 1_000_000_000:
            time.sleep(0.1)
            left = connections(ports)
        print(f"{(time.monotonic_ns() - last) / 1e9:.1f} s after the last request: {left.total()} connections")
        self.check(left, f"{left.total()} connections stay for {STAYS_MAX} s")

    async def fill(self):
        await self.callers.calls([("PUT", f"filler{number}", {"mode": "latest"}) for number in range(FILLERS)])
        for turn in range(FILLED):
            await self.callers.calls([("POST", f"filler{turn % FILLERS}/add", [{"key": f"k{n}", "text": text} for n, text in enumerate(TEXTS)])])

    async def run(self):
        pid = self.server.pid
        memory = {"empty": memory_kib(pid)}
        await self.fill()
        memory["with the pages of the journal"] = memory_kib(pid)
        await self.callers.calls([("PUT", queue(number), {"mode": "latest"}) for number in range(ENDPOINTS)])
        await asyncio.sleep(1)
        memory[f"with {ENDPOINTS} queues"] = without = memory_kib(pid)
        await self.aim(range(ENDPOINTS))
        await asyncio.sleep(1)
        memory["that push"] = memory_kib(pid)
        print(f"{os.cpu_count()} cores, load average {machine()}; {self.options.rate} changes a second", flush=True)
        await self.warm()
        for _ in range(self.options.rounds):
            for kind in "AB":
                states = await self.round(kind)
        self.check_states(states)
        memory["after the rounds"] = memory_kib(pid)
        grown = (memory["after the rounds"] - without) / ENDPOINTS
        await self.burst()
        self.gone()
        memory["at the end"] = memory_kib(pid)
        memory["at most"] = memory_kib(pid, "VmHWM")
        print("memory of the server: " + ", ".join(f"{what} {kib / 1024:.0f} MiB" for what, kib in memory.items())
              + f"; {grown:.1f} KiB for each queue because it pushes")
        self.check(grown > KIB_MAX, f"each queue needs {grown:.0f} KiB because it pushes")
        many = [f"{most} of endpoint {number} ({DEAD_AT.get(number, 'works')})" for number, most in enumerate(self.most) if most > MAX_IN_FLIGHT]
        self.check(many, f"more than {MAX_IN_FLIGHT} connections: {', '.join(many)}")
        requests = self.receiver.ask("requests")
        print(f"requests: {sum(requests)}, of the ten {[requests[number] for number in DEAD_AT]}; changes: {len(self.load.sent)}")
        without, beside = (statistics.median(self.p99[kind]) for kind in "AB")
        for kind, what in (("A", "without"), ("B", "with")):
            print(f"p99 {what} dead endpoints: {', '.join(f'{p99:.2f}' for p99 in self.p99[kind])} ms")
        print(f"medians {without:.2f} and {beside:.2f} ms: {beside / without:.2f} times as long", flush=True)
        self.check(beside > RATIO_MAX * without, f"the p99 of the others is {beside / without:.2f} times as long with dead endpoints")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=os.path.abspath)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=360)
    parser.add_argument("--one-port", action="store_true")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deltaq-endpoints-") as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        (folder / "deltaq.toml").write_text('[push]\nallow = ["http://127.0.0.1:*"]\nallow_networks = ["127.0.0.0/8"]\n')
        receiver = Process(receive)
        stack.callback(receiver.close)
        ports = receiver.pipe.recv()
        if options.one_port:
            ports = [port if DEAD_AT.get(number) == "refused" else ports[0] for number, port in enumerate(ports)]
        watcher = Process(watch, frozenset(ports))
        stack.callback(watcher.close)
        port = free_port()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DELTAQ_")}
        server = spawn([options.binary, "serve", "--config", folder / "deltaq.toml", "--data-dir", folder / "data", "--listen", f"127.0.0.1:{port}",
                        "--metrics-listen", "", "--log-level", "error"], folder / "server.log", env=environment)
        stack.callback(end, server)

        def is_ready():
            if server.poll() is not None:
                raise Wrong(f"the server has ended: {(folder / 'server.log').read_text()}")
            with contextlib.suppress(OSError):
                return call(port, "GET", "/readyz")[0] == 200

        judge = Judge(options, server, port, receiver, watcher, ports)
        gc.disable()
        try:
            until("the server is ready", is_ready, 30)
            # Its waits are as short as they should be; epoll rounds them up to milliseconds.
            with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
                limit = LIMIT + 2 * options.rounds * (options.seconds + LIMIT_OF_ROUND)
                runner.run(asyncio.wait_for(judge.run(), limit))
        except TimeoutError:
            judge.failures.append(f"not within {limit:.0f} s")
        except (Wrong, OSError, EOFError) as wrong:
            judge.failures.append(f"{type(wrong).__name__}: {wrong}")
        judge.check(server.poll() is not None, f"the server has ended with {server.returncode}: {(folder / 'server.log').read_text()[-1_000:]}")
    print(f"{time.monotonic() - begun:.0f} s; " + ("FAILED: " + "; ".join(judge.failures) if judge.failures else "held"))
    sys.exit(bool(judge.failures))


if __name__ == "__main__":
    main()
