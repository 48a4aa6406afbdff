"""Scenarios of the informer: its store equals the view of the queue, and its events lead to the store."""

from __future__ import annotations

import re
import signal
from typing import Any

from harness import PATIENCE, Failed, Program, Scenario, check, wait_for, with_token_file
from proxy import Close, Cut, Drop, Fault, Freeze, Html, Refuse, Request, Rewrite
from registry import LARGE_OFFSET, scenario, scenario_with

VERSION = re.compile(rb'("resource_version":)(\d+)')
CITIES = ("Rome", "Oslo", "Lima")
# The longest time that a client waits for the reply of a call that is no stream, in seconds.
CALL_TIMEOUT = 60.0


def city(number: int, version: int = 1) -> dict[str, Any]:
    return {"key": f"k{number:04}", "city": CITIES[(number + version) % len(CITIES)], "n": version}


def replay(program: Program, handler: int = 1) -> dict[str, Any]:
    """The objects that the events of a handler lead to. An event that does not fit the earlier ones is a fault."""
    objects: dict[str, Any] = {}
    for report in list(program.reports):
        if report.get("handler") != handler or report["event"] == "synced":
            continue
        kind, key = report["event"], report["key"]
        if kind == "add":
            check(key not in objects, f"add of {key!r}, which the handler has already")
            objects[key] = report["object"]
        elif kind == "update":
            check(objects.get(key) == report["old"], f"update of {key!r}: old is {report['old']}, the handler has {objects.get(key)}")
            objects[key] = report["new"]
        elif kind == "delete":
            check(key in objects, f"delete of {key!r}, which the handler does not have")
            del objects[key]
    return objects


def store(program: Program) -> dict[str, Any]:
    objects: dict[str, Any] = program.ask("store")["objects"]
    return objects


def wait_equal(s: Scenario, program: Program, view: str = "latest", seconds: float = PATIENCE) -> None:
    """Waits until the store equals the view, and the events of the handler lead there."""
    expected = s.view(view)
    wait_for(lambda: store(program) == expected, f"the store equals the view of {len(expected)} objects", seconds)
    wait_for(lambda: replay(program) == expected, "the events lead to the view")
    s.check_faults()


def events(program: Program, kind: str, handler: int = 1) -> list[dict[str, Any]]:
    return [report for report in program.reports if report["event"] == kind and report.get("handler") == handler]


@scenario
def informer(s: Scenario) -> None:
    """List, watch, indexes, a late handler."""
    s.add(*(city(number) for number in range(500)))
    program = s.start("informer", index="by_city=/city")
    program.send(command="wait_for_sync")
    program.expect("cache_synced")
    wait_for(lambda: events(program, "synced"), "the handler is synced")
    check(len(events(program, "add")) == 500, f"{len(events(program, 'add'))} adds before synced")
    check(all(event["is_in_initial_list"] for event in events(program, "add")), "all objects are of the initial list")
    s.post("update", [city(number, 2) for number in range(100)])
    s.server.ok("POST", s.path("delete?key=k0499"))
    s.add(city(777))
    wait_equal(s, program)
    check(not events(program, "add")[-1]["is_in_initial_list"], "a new object is not of the initial list")
    check(events(program, "delete")[0]["object"] == city(499), "a delete has the last object")
    expected = sorted(key for key, entry in s.view().items() if entry["city"] == "Oslo")
    check(program.ask("index", name="by_city", value="Oslo")["keys"] == expected, "the index has the keys of Oslo")
    check(program.ask("index", name="by_city", value="Bonn")["keys"] == [], "the index has nothing for Bonn")
    check(program.ask("get", key="k0003")["object"] == city(3, 2), "get finds an object")
    check(program.ask("get", key="k0499")["object"] is None, "get does not find a deleted object")
    program.send(command="handler")
    wait_for(lambda: events(program, "synced", 2), "the late handler is synced")
    check(replay(program, 2) == s.view(), "the late handler got the store")
    s.post("update", [city(5, 3)])
    wait_for(lambda: events(program, "update", 2), "the late handler gets changes")
    wait_equal(s, program)
    program.close_stdin()
    program.wait(0)


@scenario
def informer_known(s: Scenario) -> None:
    """The view of the acknowledged objects."""
    s.add({"key": "a"}, {"key": "b"})
    program = s.start("informer", view="known")
    program.send(command="wait_for_sync")
    program.expect("cache_synced")
    check(store(program) == {}, "nothing is known yet")
    lease = s.post("pop")["items"][0]["lease"]["id"]
    s.post("ack", {"lease_ids": [lease]})
    wait_equal(s, program, "known")
    program.stop()


@scenario
def informer_resync(s: Scenario) -> None:
    """Each resync updates every object with itself."""
    s.add({"key": "a"}, {"key": "b"})
    program = s.start("informer", resync="300ms")
    wait_for(lambda: len(events(program, "update")) >= 4, "two resyncs")
    updates = events(program, "update")[:4]
    check(all(update["old"] == update["new"] for update in updates), "a resync changes nothing")
    check(sorted(update["key"] for update in updates[:2]) == ["a", "b"], "a resync has each object once")
    program.stop()


@scenario
def informer_restarts(s: Scenario) -> None:
    """The server is killed and restarted. The watch goes on; nothing is listed again."""
    s.add(*(city(number) for number in range(20)))
    program = s.start("informer")
    wait_equal(s, program)
    for round_, how in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)):
        s.server.end(how)
        s.server.start()
        s.post("update", [city(number, round_ + 2) for number in range(5)])
        s.server.ok("POST", s.path(f"delete?key=k00{19 - round_}"))
        wait_equal(s, program)
    program.stop()


@scenario
def informer_cut(s: Scenario) -> None:
    """Streams are cut in the middle of a line, refused, or never reach the server, and a proxy sends a page instead."""
    s.add(*(city(number) for number in range(30)))
    faults: list[Fault] = [Cut(700), Drop(), Cut(130), Refuse(429, "too-many-requests", 200), Html(), Cut(1), Refuse(503, "draining", 100), Cut(333)]
    faults += [Refuse(500, "internal"), Html(200)]
    left = list(faults)
    # Faults of the next watch. One after the other would make the waits of the client long.
    due: list[Fault] = [left.pop(0)]
    s.proxy.decide = lambda request: due.pop() if due and request.call == "watch" else None
    program = s.start("informer", bookmark="1s")
    for version in range(2, 2 + len(faults)):
        s.post("update", [city(number, version) for number in range(5)])
        s.server.ok("POST", s.path(f"delete?key=k00{10 + version}"))
        wait_equal(s, program)
        wait_for(lambda: not due, "the client connects again")
        due += left[:1]
        left = left[1:]
        s.proxy.cut_all()
    program.stop()


@scenario
def informer_closed_connections(s: Scenario) -> None:
    """A proxy closes each connection behind its first reply, and says so in the reply."""
    s.proxy.decide = lambda request: Close()
    s.add({"key": "a"})
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    s.proxy.cut_all()
    s.add({"key": "b"})
    wait_equal(s, program)
    program.stop()


@scenario
def informer_silence(s: Scenario) -> None:
    """A stream on which nothing arrives any more is given up after two and a half intervals of bookmarks."""
    s.add({"key": "a"})
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    left = [Freeze()]
    s.proxy.decide = lambda request: left.pop() if left and request.call == "watch" else None
    s.proxy.cut_all()
    wait_for(lambda: not left, "the watch begins again and freezes")
    s.add({"key": "b"})
    wait_equal(s, program)
    program.stop()


@scenario
def informer_expired(s: Scenario) -> None:
    """410 of a watch whose version is too old: a new list, and deletions whose final state is unknown."""
    objects = [city(number) for number in range(10)]
    s.add(*objects)
    program = s.start("informer")
    wait_equal(s, program)
    expired = Refuse(410, "expired")
    # Every watch that goes on from the version that the informer has is too old, until it lists again.
    refused = 0

    def decide(request: Request) -> Any:
        nonlocal refused
        if request.call == "watch" and refused == 0 and request.parameter("resource_version") not in (None, "0"):
            refused += 1
            return expired
        return None

    s.server.kill()
    s.proxy.decide = decide
    s.server.start()
    wait_for(lambda: refused, "the watch goes on after the restart and gets 410")
    wait_equal(s, program)
    check(not events(program, "delete"), "nothing was deleted")
    check(len(events(program, "add")) == 10, "a list of the same objects adds nothing")


@scenario_with(DELTAQ_WATCH__TOMBSTONES="1")
def informer_forgotten(s: Scenario) -> None:
    """The queue has forgotten deletions while the informer was away: real 410, relist, DeletedFinalStateUnknown."""
    s.add(*(city(number) for number in range(10)))
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    away = True
    s.proxy.decide = lambda request: Drop() if away else None
    s.proxy.cut_all()
    for number in (1, 3, 5, 7):
        s.server.ok("POST", s.path(f"delete?key=k000{number}"))
    s.post("update", [city(2, 9)])
    s.add(city(11))
    away = False
    wait_equal(s, program)
    deletes = events(program, "delete")
    check({event["key"] for event in deletes} == {"k0001", "k0003", "k0005", "k0007"}, f"deletes: {deletes}")
    check(all(event["final_state_unknown"] for event in deletes), "the final states are unknown")
    check(deletes[0]["object"]["city"] == city(int(deletes[0]["key"][1:]))["city"], "a delete has the last object of the store")
    program.stop()


@scenario
def informer_recreated(s: Scenario) -> None:
    """The queue is deleted and created again with other objects."""
    s.add({"key": "a", "n": 1}, {"key": "b"})
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    s.server.ok("DELETE", s.path())
    s.add({"key": "a", "n": 2}, {"key": "c"})
    wait_equal(s, program)
    delete = events(program, "delete")[0]
    check(delete["key"] == "b" and delete["final_state_unknown"], f"the delete is {delete}")
    program.stop()


@scenario
def informer_new_store(s: Scenario) -> None:
    """The server loses its data, and the queue of the same name has reached the version of the watch before it connects again."""
    s.add(*(city(number) for number in range(5)))
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    s.proxy.decide = lambda request: Drop()
    s.server.kill()
    s.server.forget()
    s.server.start()
    for number in range(10, 30):
        s.add(city(number))
    s.proxy.decide = lambda request: None
    wait_equal(s, program)
    check(len(events(program, "delete")) == 5, f"{len(events(program, 'delete'))} of 5 objects are reported as deleted")
    program.stop()


@scenario
def informer_early(s: Scenario) -> None:
    """The informer starts before its queue exists."""
    program = s.start("informer")
    wait_for(lambda: s.proxy.requests, "the informer asks for the queue")
    s.add({"key": "a"})
    wait_equal(s, program)
    program.stop()


@scenario
def informer_large_versions(s: Scenario) -> None:
    """The largest versions stay exact: the watch goes on from the very version that the server has sent."""
    change = Rewrite(lambda body: re.sub(VERSION, lambda found: found[1] + b"%d" % (int(found[2]) + LARGE_OFFSET), body))
    s.proxy.decide = lambda request: change
    s.proxy.version_offset = LARGE_OFFSET
    s.add({"key": "a"})
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    for number in range(3):
        s.proxy.cut_all()
        s.add({"key": f"b{number}"})
        wait_equal(s, program)
    program.stop()


@scenario
def informer_random_faults(s: Scenario) -> None:
    """After each of N random faults the store equals the view."""
    s.add(*(city(number) for number in range(40)))
    program = s.start("informer", bookmark="1s")
    wait_equal(s, program)
    pending: list[Fault] = []
    s.proxy.decide = lambda request: pending.pop() if pending else None
    for number in range(s.faults):
        fault = s.random.choice(["cut", "cut", "cut", "freeze", "refuse", "drop", "html", "expired", "kill", "recreate"])
        match fault:
            case "kill":
                s.server.kill()
                s.server.start()
            case "recreate":
                s.server.ok("DELETE", s.path())
                s.add(*(city(key) for key in s.random.sample(range(60), 20)))
            case _:
                pending.append(stream_fault(s, fault))
                s.proxy.cut_all()
        change_some(s, number)
        try:
            # A list that is frozen is given up by its timeout, and not by the silence of a stream.
            wait_equal(s, program, seconds=CALL_TIMEOUT + PATIENCE)
        except Failed as failed:
            raise Failed(f"after fault {number} ({fault}): {failed}") from failed
    program.stop()


def stream_fault(s: Scenario, name: str) -> Fault:
    match name:
        case "cut":
            return Cut(s.random.randrange(1500))
        case "freeze":
            return Freeze(s.random.randrange(1500))
        case "refuse":
            return s.random.choice([Refuse(429, "too-many-requests", 20), Refuse(503, "draining", 20), Refuse(500, "internal")])
        case "expired":
            return Refuse(410, "expired")
        case "html":
            return s.random.choice([Html(), Html(200)])
        case _:
            return Drop()


def change_some(s: Scenario, version: int) -> None:
    for _ in range(s.random.randrange(1, 4)):
        key = s.random.randrange(60)
        if s.random.random() < 0.3:
            s.server.ok("POST", s.path(f"delete?key=k{key:04}"))
        else:
            s.post("update", [city(key, version)])


@scenario
def informer_replaced_token(s: Scenario) -> None:
    """The token file is replaced, and the watch is cut: the informer goes on with the new token."""
    rotate = with_token_file(s)
    s.add(*[city(number) for number in range(20)])
    program = s.start("informer", deltaq_token_file=s.folder / "token")
    wait_equal(s, program)
    for version in (2, 3):
        rotate()
        s.proxy.cut_all()
        s.add(*[city(number, version) for number in range(20)])
        wait_equal(s, program)
    program.stop()
