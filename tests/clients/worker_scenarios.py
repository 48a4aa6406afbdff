"""Scenarios of the worker: no acknowledged work is lost or done twice."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import Any

from harness import Failed, Program, Scenario, check, wait_for, with_token_file
from proxy import Close, Cut, Drop, Fault, Hang, Html, Refuse, Request, Rewrite, Swallow
from registry import LARGE_OFFSET, scenario
from target import Plan, Work

KEYS = 60


def objects(count: int, version: int, prefix: str = "k") -> list[dict[str, Any]]:
    return [{"key": f"{prefix}{number:03}", "n": version} for number in range(count)]


def produce_and_finish(s: Scenario, programs: list[Program], rounds: int = 3) -> None:
    """Sends rounds of changes while the workers run, then checks that all of them are written."""
    for version in range(1, rounds + 1):
        s.add(*objects(KEYS, version))
        wait_for(lambda: s.target.written() >= version * KEYS // 2 or s.target.faults, "half of the round is written")
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(KEYS, rounds)})
    s.check_stopped(*programs)


@scenario
def work(s: Scenario) -> None:
    """No faults: every change is written once."""
    produce_and_finish(s, [s.start("worker", concurrency=4, batch=10)])


@scenario
def server_killed(s: Scenario) -> None:
    """kill -9 of the server in the middle of the work. Leases survive, so nothing is delivered again."""
    restart_in_the_middle(s, signal.SIGKILL)


@scenario
def server_restarted(s: Scenario) -> None:
    """SIGTERM of the server: it drains and says 503, then it is away for a moment."""
    restart_in_the_middle(s, signal.SIGTERM)


def restart_in_the_middle(s: Scenario, how: signal.Signals) -> None:
    s.configure(lease="1m")
    s.target.plan = lambda work: Plan(delay=0.01)
    worker = s.start("worker", concurrency=2, batch=4)
    for round_ in (1, 2):
        s.add(*objects(KEYS, round_))
        wait_for(lambda: s.target.written() >= (round_ - 1) * KEYS + KEYS // 3, "a third of the round is written")
        s.server.end(how)
        s.server.start()
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(KEYS, 2)})
    s.check_stopped(worker)


@scenario
def dropped_connections(s: Scenario) -> None:
    """Every fourth request of the client is lost with its connection."""
    every(s, 4, Drop())
    produce_and_finish(s, [s.start("worker", concurrency=2, batch=5)])
    check(s.proxy.faults() > 0, "the proxy dropped no request")


@scenario
def lost_answers(s: Scenario) -> None:
    """The server applies a call, and its reply is lost: pops, settles and extends."""
    s.configure(lease="1m")
    every(s, 3, Swallow())
    produce_and_finish(s, [s.start("worker", concurrency=2, batch=5)])
    check(s.proxy.faults() > 0, "the proxy swallowed no reply")


@scenario
def cut_answers(s: Scenario) -> None:
    """Every third reply ends in the middle of its body."""
    s.configure(lease="1m")
    every(s, 3, Cut())
    produce_and_finish(s, [s.start("worker", concurrency=2, batch=5)])
    check(s.proxy.faults() > 0, "the proxy cut no reply")


@scenario
def closed_connections(s: Scenario) -> None:
    """A proxy closes each connection behind its first reply."""
    every(s, 1, Close())
    produce_and_finish(s, [s.start("worker", concurrency=2, batch=5)])


def every(s: Scenario, nth: int, fault: Fault) -> None:
    count = 0

    def decide(request: Request) -> Fault | None:
        nonlocal count
        count += 1
        return fault if count % nth == 0 else None

    s.proxy.decide = decide


def once_each(s: Scenario, *faults: Fault) -> None:
    """The requests of the client meet these faults, one after the other; every second request has none."""
    left: list[Fault | None] = [fault for each in faults for fault in (each, None)]
    s.proxy.decide = lambda request: left.pop(0) if left else None


@scenario
def too_many_requests(s: Scenario) -> None:
    """429: the client waits as long as it is asked to."""
    refused = [Refuse(429, "too-many-requests", retry_after_ms=wait) for wait in (300, 1200, 50)]
    once_each(s, *refused)
    produce_and_finish(s, [s.start("worker", concurrency=2, batch=10)])


@scenario
def unavailable(s: Scenario) -> None:
    """503, 500, 504 and 507, of calls that the server has applied or not, and pages of a proxy with 502 and 200."""
    s.configure(lease="1m")
    codes = [(503, "draining"), (503, "journal-unavailable"), (500, "internal"), (504, "timeout"), (507, "disk-full"), (503, "not-owner")]
    faults: list[Fault] = [Refuse(status, code, retry_after_ms=100, applied=applied) for status, code in codes for applied in (True, False)]
    once_each(s, *faults, Html(), Html(200))
    s.target.plan = lambda work: Plan(delay=0.005)
    produce_and_finish(s, [s.start("worker", concurrency=2, batch=4)])
    check(s.proxy.faults() > len(codes), "the client made too few calls to meet the faults")


@scenario
def slow_handler(s: Scenario) -> None:
    """A handler takes longer than its lease: the lease is extended, and nobody else gets the key."""
    s.target.plan = lambda work: Plan(delay=13.0)
    workers = [s.start("worker", lease="12s") for _ in range(2)]
    s.add({"key": "a", "n": 1})
    wait_for(lambda: s.target.written() or s.target.faults, "the slow handler writes")
    s.wait_idle()
    check(s.target.started() == 1, f"the key was delivered {s.target.started()} times")
    check(len(s.proxy.calls("extend")) >= 3, "a lease is extended at each third of its length")
    s.check_written({"a": {"key": "a", "n": 1}})
    s.check_stopped(*workers)


@scenario
def slow_batch(s: Scenario) -> None:
    """The keys of a batch wait in the client for longer than their leases."""
    s.target.plan = lambda work: Plan(delay=2.5)
    s.add(*objects(6, 1))
    workers = [s.start("worker", lease="12s", batch=6)]
    wait_for(lambda: s.target.started() >= 1, "the first handler starts")
    workers.append(s.start("worker", lease="12s", batch=6))
    s.wait_idle()
    check(s.target.started() == 6, f"6 keys were delivered {s.target.started()} times")
    s.check_written({entry["key"]: entry for entry in objects(6, 1)})
    s.check_stopped(*workers)


@scenario
def lost_extends(s: Scenario) -> None:
    """Two of three extends fail, which a third of the lease leaves time for."""
    keep_the_lease(s, [Drop(), Refuse(503, "draining", retry_after_ms=50)], "1m")


@scenario
def frozen_extend(s: Scenario) -> None:
    """An extend gets no reply, on a connection that stays open. The next one is sent early enough to keep the lease."""
    keep_the_lease(s, [Hang()], "36s")


def keep_the_lease(s: Scenario, faults: list[Fault], lease: str) -> None:
    """The first extends meet faults. The lease is so long that also a program that gets the processor late sends the next one in time."""
    left, hold = list(faults), threading.Event()
    s.proxy.decide = lambda request: left.pop(0) if left and request.call == "extend" else None
    s.target.plan = lambda work: Plan(hold=hold)
    workers = [s.start("worker", lease=lease) for _ in range(2)]
    s.add({"key": "a", "n": 1})
    wait_for(lambda: s.target.started() == 1, "the handler starts")
    [before] = s.items("leased")
    wait_for(lambda: len(s.proxy.calls("extend")) > len(faults) and s.proxy.calls("extend")[-1].is_answered, "an extend is answered")
    [after] = s.items("leased")
    check(before["lease"]["id"] == after["lease"]["id"], "the lease was lost")
    check(before["lease"]["expires_at"] < after["lease"]["expires_at"], "the lease was not extended")
    hold.set()
    s.wait_idle()
    check(s.target.started() == 1, f"the key was delivered {s.target.started()} times")
    s.check_written({"a": {"key": "a", "n": 1}})
    s.check_stopped(*workers)


@scenario
def frozen_extends(s: Scenario) -> None:
    """No extend gets a reply, on connections that stay open. The handler knows that its lease is lost before the key is delivered again."""
    first = threading.Event()

    def plan(work: Work) -> Plan:
        if work.number == 0:
            return Plan(hold=first)
        first.set()
        # Time for a write of the first handler.
        return Plan(delay=0.5)

    s.target.plan = plan
    s.proxy.decide = lambda request: Hang() if request.call == "extend" else None
    worker = s.start("worker", lease="6s", concurrency=2)
    s.add({"key": "a", "n": 1})
    wait_for(lambda: s.target.started() == 2, "the key is delivered again")
    s.wait_idle()
    s.check_written({"a": {"key": "a", "n": 1}})
    check([write.attempt for write in s.target.writes] == [2], "the handler that has lost its lease has written")
    s.check_stopped(worker)


@scenario
def lost_lease(s: Scenario) -> None:
    """Somebody ends the lease of a running handler. An extend hears of it, and the handler writes nothing."""
    first = threading.Event()
    s.target.plan = lambda work: Plan(hold=first, delay=0.3) if work.number == 0 else Plan()
    workers = [s.start("worker", lease="6s") for _ in range(2)]
    s.add({"key": "a", "n": 1})
    wait_for(lambda: s.target.started() == 1, "the first handler starts")
    lost = s.target.starts[0].lease_id
    s.post("release", {"lease_ids": [lost]})
    released_at = time.monotonic()
    wait_for(lambda: s.target.written() == 1, "the key is delivered again and written")

    def is_heard() -> bool:
        extends = [extend for extend in s.proxy.calls("extend") if lost.encode() in extend.body]
        return any(extend.is_answered and extend.at > released_at for extend in extends)

    wait_for(is_heard, "an extend of the lost lease is answered")
    first.set()
    s.wait_idle()
    s.check_written({"a": {"key": "a", "n": 1}})
    s.check_stopped(*workers)
    check(s.target.written() == 1, "the handler that has lost its lease has written")


@scenario
def expired_lease(s: Scenario) -> None:
    """No extend reaches the server, so the lease of a running handler expires. The client knows by its own clock."""
    first = threading.Event()
    s.proxy.decide = lambda request: Refuse(503, "draining", retry_after_ms=100) if request.call == "extend" else None
    s.target.plan = lambda work: Plan(hold=first if work.number == 0 else None)
    workers = [s.start("worker", lease="3s") for _ in range(2)]
    s.add({"key": "a", "n": 1})
    wait_for(lambda: s.target.written() == 1, "the key is delivered again and written")
    first.set()
    s.wait_idle()
    s.check_written({"a": {"key": "a", "n": 1}})
    s.check_stopped(*workers)
    check(s.target.written() == 1, "the handler whose lease has expired has written")


@scenario
def panics(s: Scenario) -> None:
    """Handlers panic: each key is nacked with the message, delivered again, and parked in the end."""
    s.configure(max_failures=3, rate_limiter={"item_exponential": {"base": "10ms", "max": "50ms"}})

    def plan(work: Work) -> Plan:
        if work.key == "k001" or (work.attempt == 1 and work.key < "k010"):
            return Plan({"as": "panic", "message": f"boom of {work.key}", "before_write": work.key == "k001"})
        return Plan()

    s.target.plan = plan
    worker = s.start("worker", concurrency=3, batch=4)
    s.add(*objects(20, 1))
    s.wait_idle()
    parked = s.items("parked")
    check([item["key"] for item in parked] == ["k001"], f"parked keys: {parked}")
    check("boom of k001" in (parked[0]["last_error"] or ""), f"last_error is {parked[0]['last_error']!r}")
    s.check_written({entry["key"]: entry for entry in objects(20, 1) if entry["key"] != "k001"})
    s.check_stopped(worker)


@scenario
def outcomes(s: Scenario) -> None:
    """Ack, Nack with a delay, a floor and an error, and Reject end leases as the handler says."""
    replies: dict[str, dict[str, Any]] = {
        "ack": {"as": "ack", "explicit": True},
        "nack": {"as": "nack", "delay": "1h", "floor": True, "error": "not before noon"},
        "again": {"as": "nack"},
        "reject": {"as": "reject", "error": "no such product"},
    }
    s.target.plan = lambda work: Plan(replies[work.key] if work.attempt == 1 else {"as": "ack"})
    worker = s.start("worker", concurrency=2, batch=2)
    s.add(*({"key": key} for key in replies))
    wait_for(lambda: len(s.target.writes) >= 5, "each key is written, one of them twice")
    wait_for(lambda: s.get("status")["leased"] == 0, "all leases are settled")
    [parked], [delayed] = s.items("parked"), s.items("delayed")
    check((parked["key"], parked["last_error"]) == ("reject", "no such product"), f"parked is {parked}")
    check((delayed["key"], delayed["last_error"]) == ("nack", "not before noon"), f"delayed is {delayed}")
    s.add({"key": "nack", "n": 2})
    check([item["key"] for item in s.items("delayed")] == ["nack"], "a change does not end the wait of a Nack with a floor")
    check(set(s.view("known")) == {"ack", "again"}, "the known objects are the acknowledged ones")
    s.check_stopped(worker)


@scenario
def breaker(s: Scenario) -> None:
    """Failures of one key pause nothing. Three different keys that fail in a row pause the worker, which then tries one key at a time until one succeeds."""
    s.configure(rate_limiter={"item_exponential": {"base": "1h", "max": "1h"}})
    at: list[float] = []

    def plan(work: Work) -> Plan:
        at.append(time.monotonic())
        if work.key == "odd" and work.attempt < 5:
            return Plan({"as": "nack", "delay": "10ms", "error": "odd"})
        return Plan({"as": "nack", "error": "the target is away"} if 5 <= work.number < 9 else {"as": "ack"})

    s.target.plan = plan
    worker = s.start("worker", concurrency=1, batch=5, breaker=3)
    s.add({"key": "odd"})
    wait_for(lambda: set(s.view("known")) == {"odd"}, "the odd key is acknowledged after its failures")
    check("the worker pauses" not in worker.stderr_text(), "failures of one key have paused the worker")
    s.add(*objects(20, 1))
    wait_for(lambda: "the worker goes on" in worker.stderr_text(), "the worker goes on")
    wait_for(lambda: len(s.view("known")) == 17, "all other keys are acknowledged")
    wait_for(lambda: s.get("status")["leased"] == 0, "all leases are settled")
    # The fifth to seventh failure are those of three keys; then one key is tried after 1 s, and one 2 s later. Timers of programs have whole milliseconds.
    check(at[8] - at[7] > 0.95 and at[9] - at[8] > 1.95, f"the worker waited for {at[8] - at[7]:.3f} s and {at[9] - at[8]:.3f} s")
    said = worker.stderr_text().count("the worker pauses")
    check(said == 2, f"stderr says {said} times that the worker pauses")
    delayed = s.items("delayed")
    check(len(delayed) == 4 and all(item["failures"] == 1 for item in delayed), f"delayed is {delayed}")
    tried = [pop.parameter("max") for pop in s.proxy.calls("pop")]
    check(tried.count("1") >= 2, f"the pops ask for {tried} keys")
    s.check_stopped(worker)


@scenario
def breaker_sigterm(s: Scenario) -> None:
    """SIGTERM ends a worker that pauses. The keys that it has taken without working on them are released, without a failure."""
    s.target.plan = lambda work: Plan({"as": "nack", "delay": "1h"})
    s.add(*objects(8, 1))
    worker = s.start("worker", concurrency=1, batch=8, breaker=2)
    wait_for(lambda: "the worker pauses" in worker.stderr_text(), "the worker pauses")
    wait_for(lambda: s.get("status")["leased"] == 0, "the other keys are released during the pause")
    worker.stop()
    check(s.get("status")["delayed"] >= 2 and not s.items("leased"), f"the status is {s.get('status')}")
    check(all(item["failures"] == 0 for item in s.items("ready")), "a release is no failure")


@scenario
def holds(s: Scenario) -> None:
    """A Release with a hold stops the delivery of the queue until somebody resumes it."""
    s.target.plan = lambda work: Plan({"as": "release", "hold": "2h"} if work.number == 0 else {"as": "ack"})
    worker = s.start("worker", concurrency=1, batch=1)
    s.add(*objects(3, 1))
    wait_for(lambda: s.get("status")["held_until"] is not None, "the queue is held")
    wait_for(lambda: s.get("status")["leased"] == 0, "all leases are settled")
    status = s.get("status")
    check((status["ready"], status["parked"]) == (3, 0), f"the status is {status}")
    s.server.ok("POST", s.path("resume"))
    wait_for(lambda: s.target.written() == 4, "each key is written, and the first one again")
    s.check_stopped(worker)


@scenario
def holds_of_a_key(s: Scenario) -> None:
    """A Release with a hold of the key stops the delivery of this key only, without a failure."""
    s.target.plan = lambda work: Plan({"as": "release", "hold": "2h", "hold_scope": "key"} if work.key == "k000" else {"as": "ack"})
    worker = s.start("worker", concurrency=1, batch=1)
    s.add(*objects(3, 1))
    wait_for(lambda: len(s.view("known")) == 2, "the other keys are acknowledged")
    wait_for(lambda: s.get("status")["leased"] == 0, "all leases are settled")
    [held] = s.items("delayed")
    check((held["key"], held["failures"]) == ("k000", 0), f"delayed is {held}")
    check(s.get("status")["held_until"] is None, "the queue is not held")
    s.check_stopped(worker)


@scenario
def one_group(s: Scenario) -> None:
    """A worker of one group takes no other keys."""
    s.configure(groups={"by": "/tenant"})
    s.add(*({"key": f"{tenant}-{number}", "tenant": tenant} for number in range(3) for tenant in ("acme", "bolt")))
    worker = s.start("worker", concurrency=1, batch=2, group="acme")
    wait_for(lambda: s.target.written() == 3, "the keys of the group are written")
    s.add({"key": "bolt-3", "tenant": "bolt"}, {"key": "acme-3", "tenant": "acme"})
    wait_for(lambda: s.target.written() == 4, "the new key of the group is written")
    wait_for(lambda: s.get("status")["leased"] == 0, "all leases are settled")
    left = sorted(item["key"] for item in s.items("ready"))
    check(left == [f"bolt-{number}" for number in range(4)], f"ready is {left}")
    s.check_stopped(worker)


@scenario
def keys_done(s: Scenario) -> None:
    """Mode keys: Done with a delay brings the key again."""
    s.configure(mode="keys")
    s.target.plan = lambda work: Plan({"as": "done", "delay": "200ms"} if work.number < 3 else {"as": "done"})
    worker = s.start("worker")
    s.server.ok("POST", s.path("add?key=web-1"))
    wait_for(lambda: s.target.written() == 4, "the key is delivered four times")
    s.wait_idle()
    s.check_stopped(worker)


@scenario
def done_elsewhere(s: Scenario) -> None:
    """Done in a queue that is not of mode keys is a failure of its key. Other keys are settled, and the worker goes on."""
    hour = {"base": "1h", "max": "1h"}
    s.configure(rate_limiter={"item_exponential": hour})
    s.target.plan = lambda work: Plan({"as": "done"} if work.key == "k003" else {"as": "ack"})
    worker = s.start("worker", concurrency=2, batch=5)
    s.add(*objects(10, 1))
    wait_for(lambda: s.get("status")["delayed"] == 1 and len(s.view("known")) == 9, "all other keys are acknowledged")
    [failed] = s.items("delayed")
    check((failed["key"], failed["failures"]) == ("k003", 1), f"delayed is {failed}")
    check("only for queues of mode keys" in (failed["last_error"] or ""), f"last_error is {failed['last_error']!r}")
    s.check_stopped(worker)


@scenario
def sigterm(s: Scenario) -> None:
    """SIGTERM during work: running handlers finish and are acknowledged, the rest of the batch is released."""
    hold = threading.Event()
    s.target.plan = lambda work: Plan(hold=hold)
    s.add(*objects(8, 1))
    worker = s.start("worker", concurrency=2, batch=8, lease="12s")
    wait_for(lambda: s.target.started() == 2, "two handlers run")
    check(not s.proxy.calls("extend"), "a lease was extended early")
    worker.signal(signal.SIGTERM)
    # The leases of running handlers are extended during the stop, too.
    wait_for(lambda: any(call.is_answered for call in s.proxy.calls("extend")), "the leases are extended")
    check(worker.is_running(), "the worker ended before its handlers")
    hold.set()
    worker.wait(0)
    s.check_faults()
    check(s.target.started() == 2 and s.target.written() == 2, "handlers started after SIGTERM")
    check(len(s.view("known")) == 2, "the running handlers were not acknowledged")
    ready = s.items("ready")
    check(len(ready) == 6 and not s.items("leased,delayed,parked"), f"{len(ready)} of 6 keys are ready")
    check(all(item["failures"] == 0 for item in ready), "a release is no failure")


@scenario
def sigterm_idle(s: Scenario) -> None:
    """SIGTERM while a pop waits ends the worker at once."""
    worker = s.start("worker")
    wait_for(lambda: s.proxy.calls("pop"), "the worker pops")
    worker.signal(signal.SIGTERM)
    worker.wait(0, 5)
    s.add({"key": "a"})
    check(not s.items("leased"), "a pop of the stopped worker has leased a key")


@scenario
def sigterm_while_down(s: Scenario) -> None:
    """SIGTERM while the server is away: the worker ends nevertheless."""
    s.target.plan = lambda work: Plan(delay=0.3)
    worker = s.start("worker")
    s.add({"key": "a"})
    wait_for(lambda: s.target.started() == 1, "the handler starts")
    s.server.kill()
    wait_for(lambda: s.target.written() == 1, "the handler ends")
    worker.signal(signal.SIGTERM)
    worker.wait(None, 20)
    s.server.start()
    s.check_faults()


@scenario
def sigterm_during_outage(s: Scenario) -> None:
    """SIGTERM while the server is away for some seconds and a handler runs: its lease is extended later, and its outcome is sent."""
    hold = threading.Event()
    s.target.plan = lambda work: Plan(hold=hold)
    worker = s.start("worker", concurrency=2, lease="12s")
    s.add({"key": "a"})
    wait_for(lambda: s.target.started() == 1, "the handler starts")
    wait_for(lambda: len(s.proxy.calls("pop")) >= 2, "a pop waits")
    s.proxy.decide = lambda request: Drop()
    s.proxy.cut_all()
    worker.signal(signal.SIGTERM)
    time.sleep(6)
    s.proxy.decide = lambda request: None
    wait_for(lambda: any(call.is_answered for call in s.proxy.calls("extend")), "the lease is extended")
    hold.set()
    worker.wait(0)
    s.check_written({"a": {"key": "a"}})
    check(not s.items("leased"), "the key is still leased after the worker has ended")


@scenario
def rolling_restart(s: Scenario) -> None:
    """A fleet of three workers is replaced one by one while changes arrive. Nothing is delivered twice."""
    s.target.plan = lambda work: Plan(delay=0.01)
    fleet = [s.start("worker", concurrency=2, batch=4) for _ in range(3)]
    for worker in fleet:
        s.wait_popping(worker)
    for version in range(1, 4):
        s.add(*objects(KEYS, version))
        wait_for(lambda: s.target.written() > (version - 1) * KEYS // 2, "work goes on")
        old = fleet.pop(0)
        fleet.append(s.start("worker", concurrency=2, batch=4))
        s.wait_popping(old)
        old.stop()
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(KEYS, 3)})
    s.check_stopped(*fleet)
    check(len({write.worker for write in s.target.writes}) >= 4, "the new workers did no work")


@scenario
def worker_killed(s: Scenario) -> None:
    """kill -9 of a worker: its keys are delivered to another one after their leases."""
    s.target.may_repeat = True
    s.target.plan = lambda work: Plan(delay=0.02)
    s.add(*objects(KEYS, 1))
    first = s.start("worker", concurrency=2, batch=4, lease="1s")
    wait_for(lambda: s.target.written() >= 10, "the worker works")
    first.kill()
    second = s.start("worker", concurrency=4, batch=4, lease="1s")
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(KEYS, 1)})
    s.check_stopped(second)


@scenario
def queue_closed(s: Scenario) -> None:
    """The worker drains a closed queue, and ends with status 0."""
    s.target.plan = lambda work: Plan(delay=0.05)
    s.add(*objects(10, 1))
    worker = s.start("worker", batch=3)
    wait_for(lambda: s.target.started() >= 1, "the worker works")
    s.post("close")
    worker.wait(0)
    s.check_written({entry["key"]: entry for entry in objects(10, 1)})


@scenario
def queue_deleted(s: Scenario) -> None:
    """The queue is deleted and created again while a pop waits and a handler runs: the worker goes on with the new one."""
    hold = threading.Event()
    s.target.plan = lambda work: Plan(hold=hold if work.number == 0 else None)
    worker = s.start("worker", concurrency=2)
    s.add({"key": "old"})
    wait_for(lambda: s.target.started() == 1, "the handler starts")
    s.server.ok("DELETE", s.path())
    s.add({"key": "new"})
    wait_for(lambda: any(work.key == "new" for work in s.target.writes), "the key of the new queue is written")
    hold.set()
    s.wait_idle()
    s.check_stopped(worker)
    check(s.view("known") == {"new": {"key": "new"}}, "the new queue has its key alone")


@scenario
def queue_created_later(s: Scenario) -> None:
    """The worker starts before its queue exists: it says so once, asks again after 1 s, then after 2 s, and works once the queue is there."""
    worker = s.start("worker", is_early=True)
    wait_for(lambda: len(s.proxy.calls("pop")) == 3, "the worker has asked three times")
    first, second, third = (pop.at for pop in s.proxy.calls("pop"))
    # Timers of programs have whole milliseconds.
    check(second - first > 0.95 and third - second > 1.95, f"the worker asked after {second - first:.3f} s and {third - second:.3f} s")
    check(s.server.call("GET", s.path())[0] == 404, "a pop has created the queue")
    s.add(*objects(9, 1))
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(9, 1)})
    said = worker.stderr_text().count(f"queue {s.queue} does not exist yet")
    check(said == 1, f"stderr says {said} times that the queue does not exist")
    s.check_stopped(worker)


@scenario
def sigterm_without_queue(s: Scenario) -> None:
    """SIGTERM ends a worker that waits for its queue."""
    worker = s.start("worker", is_early=True)
    wait_for(lambda: any(pop.is_answered for pop in s.proxy.calls("pop")), "the worker waits for its queue")
    worker.stop()
    s.add({"key": "a"})
    check(not s.items("leased"), "a pop of the stopped worker has leased a key")


@scenario
def refused_token(s: Scenario) -> None:
    """401 is not retryable: the worker ends with 1 and says why."""
    s.proxy.decide = lambda request: Refuse(401, "unauthorized")
    worker = s.start("worker")
    worker.wait(1)
    check("unauthorized" in worker.stderr_text(), "stderr does not have the code of the problem")
    check(len(s.proxy.calls("pop")) == 1, "a call that is not retryable was repeated")


@scenario
def large_tokens(s: Scenario) -> None:
    """The largest fencing tokens stay exact."""
    change = Rewrite(lambda body: re.sub(rb'"token":(\d+)', lambda found: b'"token":%d' % (int(found[1]) + LARGE_OFFSET), body))
    s.proxy.decide = lambda request: change if request.call == "pop" else None
    s.add(*objects(9, 1))
    worker = s.start("worker", batch=3)
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(9, 1)})
    tokens = {work.token for work in s.target.starts}
    real = {int(work.lease_id.rsplit("-", 1)[1]) + LARGE_OFFSET for work in s.target.starts}
    if tokens != real:
        raise Failed(f"the tokens are {sorted(tokens)} instead of {sorted(real)}")
    s.check_stopped(worker)


@scenario
def replaced_token(s: Scenario) -> None:
    """The token file is replaced while keys are leased: the worker goes on with the new token."""
    rotate = with_token_file(s)
    s.target.plan = lambda work: Plan(delay=0.01)
    worker = s.start("worker", concurrency=4, batch=10, deltaq_token_file=s.folder / "token")
    for version in range(1, 4):
        s.add(*objects(KEYS, version))
        wait_for(lambda: s.target.written() >= version * KEYS // 2 or s.target.faults, "half of the round is written")
        rotate()
    s.wait_idle()
    s.check_written({entry["key"]: entry for entry in objects(KEYS, 3)})
    s.check_stopped(worker)
