"""Scenarios of the reflector and of producers: each change is queued once, and in order."""

from __future__ import annotations

import signal
import time
from typing import Any

from harness import Program, Scenario, check, wait_for, with_token_file
from proxy import Cut, Drop, Fault, Html, Refuse, Swallow
from registry import scenario


def drain(s: Scenario) -> list[tuple[str, str, Any]]:
    """Pops and acknowledges everything: (key, type, object) of each delta."""
    found: list[tuple[str, str, Any]] = []
    while True:
        items = s.post("pop?max=100")["items"]
        if not items:
            return found
        found += [(item["key"], delta["type"], delta.get("object")) for item in items for delta in item["deltas"]]
        s.post("ack", {"lease_ids": [item["lease"]["id"] for item in items]})


def updates(first: int, count: int) -> list[dict[str, Any]]:
    return [{"type": "Updated", "object": {"key": "a", "n": number}} for number in range(first, first + count)]


def applied(program: Program, number: int) -> None:
    for _ in range(number):
        program.expect("applied")


@scenario
def reflector(s: Scenario) -> None:
    """Lists and changes of a source arrive in order, and only what has changed is queued."""
    s.configure(mode="events")
    program = s.start("reflector", source="erp")
    program.send(command="list", objects=[{"key": key} for key in "abc"])
    program.send(command="changes", deltas=[{"type": "Updated", "object": {"key": "a", "n": 1}}, {"type": "Deleted", "key": "b"}])
    program.send(command="list", objects=[{"key": "a", "n": 1}, {"key": "d"}])
    applied(program, 3)
    kinds = [(key, kind) for key, kind, _ in drain(s)]
    check(
        len(kinds) == 7
        and set(kinds)
        == {
            ("a", "Replaced"),
            ("b", "Replaced"),
            ("c", "Replaced"),
            ("a", "Updated"),
            ("b", "Deleted"),
            ("d", "Replaced"),
            ("c", "Deleted"),
        },
        f"the queue has {kinds}",
    )
    [source] = s.get("sources")["items"]
    check((source["source"], source["sequence"]) == ("erp", 3), f"the source is {source}")
    program.close_stdin()
    program.wait(0)


@scenario
def reflector_lost_answers(s: Scenario) -> None:
    """Replies are lost, cut and refused after the call was applied. Each change is queued once, in order."""
    s.configure(mode="events")
    faults: list[Fault] = [
        Swallow(),
        Cut(),
        Drop(),
        Refuse(503, "journal-unavailable", 100, applied=True),
        Refuse(504, "timeout", 50, applied=True),
        Html(),
        Refuse(429, "too-many-requests", 200),
    ]
    left: list[Fault | None] = [fault for each in faults * 2 for fault in (each, None)]
    s.proxy.decide = lambda request: left.pop(0) if left else None
    program = s.start("reflector", source="erp")
    program.send(command="list", objects=[{"key": "a", "n": 0}])
    for number in range(1, 20):
        program.send(command="changes", deltas=updates(number, 1))
    applied(program, 20)
    check(not left, f"{len(left)} faults were not met")
    numbers = [entry["n"] for _, _, entry in drain(s)]
    check(numbers == list(range(20)), f"the changes are {numbers}")
    check(any(report["duplicate"] for report in program.reports), "no repeat was recognised as a duplicate")
    program.stop()


@scenario
def reflector_restarts(s: Scenario) -> None:
    """The server is killed while changes are sent, and a new reflector goes on with the sequence of the old one."""
    s.configure(mode="events")
    program = s.start("reflector", source="erp")
    program.send(command="list", objects=[{"key": "a", "n": 0}])
    for number in range(1, 30):
        program.send(command="changes", deltas=updates(number, 1))
        if number % 10 == 0:
            s.server.end(signal.SIGKILL if number == 10 else signal.SIGTERM)
            s.server.start()
    applied(program, 30)
    program.kill()
    program = s.start("reflector", source="erp")
    program.send(command="changes", deltas=updates(30, 1))
    check(not program.expect("applied")["duplicate"], "the sequence of the new reflector is too low")
    numbers = [entry["n"] for _, _, entry in drain(s)]
    check(numbers == list(range(31)), f"the changes are {numbers}")
    program.stop()


@scenario
def reflector_mass_delete(s: Scenario) -> None:
    """An empty list is refused and reported, and the reflector goes on."""
    program = s.start("reflector", source="erp")
    program.send(command="list", objects=[{"key": "a"}, {"key": "b"}])
    applied(program, 1)
    program.send(command="list", objects=[])
    check(program.expect("refused")["code"] == "mass-delete", "the refusal has its code")
    program.send(command="list", objects=[{"key": "a"}])
    applied(program, 1)
    check(set(s.view()) == {"a"}, "the last list is in force")
    program.stop()


@scenario
def reflector_skips_invalid(s: Scenario) -> None:
    """Objects that the queue refuses are left out: the others are applied, their keys keep what they have, and the reflector goes on."""
    s.configure(schema={"properties": {"price": {"type": "number"}}}, max_object_bytes=1000)
    program = s.start("reflector", source="erp")

    def send(command: str, invalid: int, **entries: object) -> None:
        report = program.ask_for("applied", command=command, **entries)
        check(report["invalid"] == invalid, f"of {entries} the reflector reports {report}")

    keys = [f"k{number:02}" for number in range(30)]
    send("list", 0, objects=[{"key": key, "price": 1} for key in keys])
    # Two objects are not valid. Another one changes, and one is gone.
    changed = [{"key": key, "price": 2} for key in keys[3:]]
    send("list", 2, objects=[{"key": "k00", "price": "x"}, {"key": "k01", "text": "x" * 2000}, *changed])
    prices = {"k00": 1, "k01": 1} | dict.fromkeys(keys[3:], 2)

    def check_prices() -> None:
        check({key: entry["price"] for key, entry in s.view().items()} == prices, f"the queue has {s.view()}")

    check_prices()
    # The key can't be read, so it may be any of those that the list lacks.
    for wrong in ({"price": 1}, {"key": None, "price": 1}):
        send("list", 1, objects=[*changed[1:], wrong])
        check_prices()
    # This text can't be a key, so it is none of those that the list lacks.
    send("list", 1, objects=[*changed[1:], {"key": "\n"}])
    for gone in ("k00", "k01", "k03"):
        del prices[gone]
    check_prices()
    deltas = [{"type": "Updated", "object": entry} for entry in ({"key": "k04", "price": 4}, {"key": "k05", "price": []}, {"price": 1})]
    send("changes", 2, deltas=[*deltas, {"type": "Deleted", "key": "k06"}])
    send("changes", 1, deltas=deltas[1:2])
    prices["k04"] = 4
    del prices["k06"]
    check_prices()
    # The source is broken.
    program.send(command="list", objects=[{"key": "k00"}, *({"price": 1} for _ in range(3))])
    check(program.expect("refused")["code"] == "no-key", "the refusal has the code of the first object")
    check_prices()
    send("list", 0, objects=changed[:1] + changed[4:])
    check(set(s.view()) == {"k03", *keys[7:]}, f"a valid list deletes what it lacks, and the queue has {set(s.view())}")
    program.stop()


@scenario
def reflector_restored_target(s: Scenario) -> None:
    """The reflector says if the queue was deleted or has lost what was sent because a backup was restored, and not after an ordinary restart."""
    program = s.start("reflector", source="erp")

    def change(event: str, key: str) -> None:
        program.ask_for(event, command="changes", deltas=[{"type": "Updated", "object": {"key": key}}])

    def list_again(*keys: str) -> None:
        report = program.ask_for("applied", command="list", objects=[{"key": key} for key in keys])
        check(not report["duplicate"] and set(s.view()) == set(keys), f"{report}, and the queue has {set(s.view())}")

    program.ask_for("applied", command="list", objects=[{"key": "a"}])
    change("applied", "b")
    s.server.kill()
    s.server.save()
    s.server.start()
    change("applied", "c")
    check(set(s.view()) == {"a", "b", "c"}, "an ordinary restart has lost nothing")
    s.server.kill()
    s.server.restore()
    s.server.start()
    change("lost", "d")
    list_again("a", "b", "c", "d")
    change("applied", "e")
    s.server.ok("DELETE", s.path())
    change("lost", "f")
    list_again("a", "b", "c", "d", "e", "f")
    program.stop()


@scenario
def produce_once(s: Scenario) -> None:
    """With sequence numbers a call whose reply is lost is applied once."""
    s.configure(mode="events")
    faults: list[Fault] = [Swallow(), Drop(), Cut(), Refuse(504, "timeout", 50, applied=True)]
    left: list[Fault | None] = [fault for each in faults * 3 for fault in (None, each)]
    s.proxy.decide = lambda request: left.pop(0) if left else None
    program = s.start("produce", source="erp")
    for number in range(1, 16):
        program.send(command="update", objects=[{"key": "a", "n": number}], sequence=str(number))
    replies = [program.expect("reply") for _ in range(15)]
    numbers = [entry["n"] for _, _, entry in drain(s)]
    check(numbers == list(range(1, 16)), f"the changes are {numbers}")
    check(any(reply["duplicate"] for reply in replies), "no repeat was recognised as a duplicate")
    program.close_stdin()
    program.wait(0)


@scenario
def produce_calls(s: Scenario) -> None:
    """add, update, delete and replace, with a large number that stays exact where the language can."""
    program = s.start("produce")
    program.send(command="add", objects=[{"key": "a"}, {"key": "b"}])
    check(program.expect("reply")["queued"] == 2, "two objects are queued")
    program.send(command="update", objects=[{"key": "a", "n": 1}])
    program.send(command="delete", key="b")
    program.send(command="replace", objects=[{"key": "a", "n": 1}, {"key": "c"}])
    replies = [program.expect("reply") for _ in range(3)]
    check([reply["duplicate"] for reply in replies] == [False] * 3, f"the replies are {replies}")
    check(s.view() == {"a": {"key": "a", "n": 1}, "c": {"key": "c"}}, f"the queue has {s.view()}")
    program.stop()


@scenario
def counted_once(s: Scenario) -> None:
    """Purge and remove would count again: they are repeated only if they were certainly not applied."""
    left: list[Fault] = []
    s.proxy.decide = lambda request: left.pop(0) if left else None
    s.add({"key": "a"})
    program = s.start("produce")
    for command in ("purge", "remove"):
        left += [Refuse(429, "too-many-requests", 50), Swallow()]
        sent = len(s.proxy.requests)
        program.send(command=command)
        error = program.expect("error")
        check((error["code"], error["status"]) == (None, None), f"the error is {error}")
        check(len(s.proxy.requests) - sent == 2, f"{command} was sent {len(s.proxy.requests) - sent} times")
        check(not s.items("ready") if command == "purge" else not s.view(), f"{command} was applied")
        program.send(command="add", objects=[{"key": "b"}])
        program.expect("reply")
        program.send(command=command)
        program.expect("reply")
    check(s.server.call("GET", s.path())[0] == 404, "the queue is removed")
    program.stop()


@scenario
def counted_without_connection(s: Scenario) -> None:
    """A call that would count again is repeated if the connection was refused: nothing was sent."""
    s.add({"key": "a"})
    program = s.start("produce", deltaq_url=f"http://127.0.0.1:{s.server.port}")
    program.send(command="add", objects=[{"key": "b"}])
    program.expect("reply")
    s.server.kill()
    # The client may need a moment to notice that its open connection has ended.
    time.sleep(2)
    program.send(command="purge")
    time.sleep(0.5)
    check(not any(report["event"] == "error" for report in program.reports), "the purge was given up")
    s.server.start()
    program.expect("reply")
    check(not s.items("ready"), "the purge was not applied")
    program.stop()


@scenario
def bounded_retries(s: Scenario) -> None:
    """A call is sent MAX_ATTEMPTS times, then the error is reported. What is not retryable is sent once."""
    replies: list[Any] = [Refuse(503, "journal-unavailable", 20)] * 3 + [Drop()] * 3
    s.proxy.decide = lambda request: replies.pop(0) if replies else None
    program = s.start("produce", max_attempts=3)
    program.send(command="add", objects=[{"key": "a"}])
    error = program.expect("error")
    check((error["code"], error["status"], error["retryable"]) == ("journal-unavailable", 503, True), f"the error is {error}")
    check(len(s.proxy.requests) == 3, f"the call was sent {len(s.proxy.requests)} times")
    # Another call: it need not wait for the Retry-After of the first one.
    program.send(command="add", objects=[{"key": "b"}])
    error = program.expect("error")
    check((error["code"], error["status"]) == (None, None), f"the error is {error}")
    check(len(s.proxy.requests) == 6, f"the call was sent {len(s.proxy.requests) - 3} times")
    program.send(command="add", objects=[{"nokey": 1}])
    error = program.expect("error")
    check((error["code"], error["status"], error["retryable"]) == ("no-key", 422, False), f"the error is {error}")
    check(len(s.proxy.requests) == 7, "a call that is not retryable was repeated")
    program.send(command="add", objects=[{"key": "c"}])
    program.expect("reply")
    wait_for(lambda: set(s.view()) == {"c"}, "the last call is applied")
    program.stop()


@scenario
def reflector_replaced_token(s: Scenario) -> None:
    """The token file is replaced between calls: the reflector goes on with the new token."""
    rotate = with_token_file(s)
    s.configure(mode="events")
    program = s.start("reflector", source="erp", deltaq_token_file=s.folder / "token")
    program.send(command="list", objects=[{"key": "a", "n": 0}])
    applied(program, 1)
    for number in (1, 2):
        rotate()
        program.send(command="changes", deltas=updates(number, 1))
        applied(program, 1)
    rotate()
    program.send(command="list", objects=[{"key": "a", "n": 3}])
    applied(program, 1)
    check([entry["n"] for _, _, entry in drain(s)] == [0, 1, 2, 3], "the changes are not all there, in their order and once")
    program.close_stdin()
    program.wait(0)
