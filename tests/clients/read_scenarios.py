"""Scenarios of readers: every key can be read, whatever the way to the server does to paths."""

from __future__ import annotations

from harness import Scenario, check
from produce_scenarios import drain
from registry import scenario

# Keys that are not the same behind a client or a proxy that resolves paths.
KEYS = [".", "..", "...", "a", "./a", "a/.", "a/..", "../a", "../../other", "a//b", "a/b", "/", "//", "/a", "a/"]
KEYS += ["%2e", "%2E%2e", "..%2f", "%252e", "\\..", "..;", "?", "#", "&key=a", "+", " ", "ü", "items"]


@scenario
def read_every_key(s: Scenario) -> None:
    """Every key is read, and deleted, as itself, also through a proxy that normalises paths."""
    s.post("seed", [{"object": {"key": key, "n": number}} for number, key in enumerate(KEYS)])
    s.post("update", [{"key": key, "n": -number} for number, key in enumerate(KEYS)])
    s.server.ok("POST", "/v1/queues/other/add", {"key": "a"})
    for normalises in (False, True):
        s.proxy.normalises = normalises
        program = s.start("read")
        for number, key in enumerate(KEYS):
            old, new = {"key": key, "n": number}, {"key": key, "n": -number}
            wanted = {"item": (key, new), "latest": (key, new), "known": (key, old), "explain": (key, None), "history": (None, new)}
            for command, (name, entry) in wanted.items():
                found = program.ask_for("read", command=command, key=key)
                check((found["key"], found["object"]) == (name, entry), f"{command} of {key!r} is {found}")
        for command in ("item", "latest", "known", "history"):
            found = program.ask_for("read", command=command, key="../items")
            check((found["key"], found["object"]) == (None, None), f"{command} of an absent key is {found}")
        program.stop()
    left = set(KEYS)
    drain(s)
    program = s.start("produce")
    for key in KEYS:
        program.ask_for("reply", command="delete", key=key)
        left.discard(key)
        check(set(s.view()) == left, f"after {key!r} was deleted, the queue has {set(s.view())}")
    program.stop()
    names = [queue["name"] for queue in s.server.ok("GET", "/v1/queues")["items"]]
    check(sorted(names) == ["other", s.queue], f"the queues are {names}")
    check(s.server.ok("GET", "/v1/queues/other/latest/a")["object"] == {"key": "a"}, "the other queue was not touched")
