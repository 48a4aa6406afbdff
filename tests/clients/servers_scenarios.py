"""Scenarios of a client that has the URLs of several servers."""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Callable, Iterator
from typing import Any

from harness import Program, Scenario, check, wait_for
from informer_scenarios import city, store
from produce_scenarios import drain
from proxy import Cut, Drop, Fault, Html, Proxy, Refuse, Request, Swallow
from registry import scenario
from worker_scenarios import KEYS, objects


@contextlib.contextmanager
def second(s: Scenario) -> Iterator[Proxy]:
    """Another way to the server."""
    proxy = Proxy()
    proxy.server_port = s.proxy.server_port
    try:
        yield proxy
        check(not proxy.wrong, "; ".join(proxy.wrong[:3]))
    finally:
        proxy.close()


def nowhere() -> str:
    """A URL at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def of_purges(fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda request: fault if request.call == "purge" else None


def ask(program: Program, command: str, event: str = "reply", **fields: Any) -> dict[str, Any]:
    return program.ask_for(event, command=command, **fields)


def add(program: Program, key: str) -> None:
    report = ask(program, "add", objects=[{"key": key}])
    check(report["queued"] == 1, f"the reply to {key} is {report}")


@scenario
def several_servers(s: Scenario) -> None:
    """The client has several URLs, and goes on at the next one while the present one can't be reached."""
    s.configure()
    with second(s) as other:
        program = s.start("produce", deltaq_url=f"{nowhere()}, {s.proxy.url},{other.url}", max_attempts=4)
        add(program, "first")
        add(program, "stays")
        check((len(s.proxy.calls("add")), len(other.calls("add"))) == (2, 0), "the client does not stay with a server that answers")
        s.proxy.decide = lambda request: Drop()
        add(program, "lost")
        s.proxy.close()
        add(program, "next")
        check(len(other.calls("add")) == 2, "the client does not go on at the next server")
        check({key for key, _, _ in drain(s)} == {"first", "stays", "lost", "next"}, "a change was lost")
        program.close_stdin()
        program.wait(0)


@scenario
def several_servers_once(s: Scenario) -> None:
    """A call that is not safe to repeat goes on at the next server exactly if nothing was done."""
    s.configure()
    with second(s) as other:
        undone: list[tuple[str, str, Fault]] = [
            ("the server is away", nowhere(), Drop()),
            ("no server of two is there", f"{nowhere()},{nowhere()}", Drop()),
            ("the server drains", s.proxy.url, Refuse(503, "draining", 1)),
            ("the server does not know the token", s.proxy.url, Refuse(401, "unauthorized")),
            ("it is no deltaq server", s.proxy.url, Html(404)),
        ]
        for count, (what, url, fault) in enumerate(undone, 1):
            s.proxy.decide = of_purges(fault)
            # A single attempt: the call goes to the next server at once.
            program = s.start("produce", deltaq_url=f"{url},{other.url}", max_attempts=1)
            ask(program, "purge")
            check(len(other.calls("purge")) == count, f"{what}, and the call does not go on")
            program.close_stdin()
            program.wait(0)
        unknown: list[tuple[str | None, Fault]] = [(None, Swallow()), (None, Cut())]
        unknown += [(code, Refuse(status, code, 1, applied=True)) for status, code in ((503, "not-owner"), (504, "timeout"))]
        for code, fault in unknown:
            s.proxy.decide = of_purges(fault)
            before = len(other.calls("purge"))
            program = s.start("produce", deltaq_url=f"{s.proxy.url},{other.url}", max_attempts=4)
            report = ask(program, "purge", event="error")
            check(report["code"] == code, f"the report is {report}")
            check(len(other.calls("purge")) == before, f"{code}: a call that may have been applied was sent to the next server")
            ask(program, "purge")
            check(len(other.calls("purge")) == before + 1, "the next call does not go to the next server")
            program.close_stdin()
            program.wait(0)


@scenario
def several_servers_worker(s: Scenario) -> None:
    """A worker goes on at the next server when its server is gone, and when connections pass nothing. Pops that wait do so too."""
    with second(s) as other, second(s) as third:
        worker = s.start("worker", deltaq_url=f"{s.proxy.url},{other.url},{third.url}", concurrency=4, batch=10)
        for version, proxy in enumerate((s.proxy, other), 1):
            s.add(*objects(KEYS, version))
            s.wait_idle()
            wait_for(functools.partial(proxy.calls, "pop"), "the worker pops here")
            if version == 1:
                proxy.close()
            else:
                proxy.is_silent = True
        s.add(*objects(KEYS, 3))
        s.wait_idle()
        s.check_written({entry["key"]: entry for entry in objects(KEYS, 3)})
        worker.stop()
        check(not s.items("leased"), "a key is still leased")
        check(third.calls("pop"), "the worker does not pop at the third server")


@scenario
def several_servers_informer(s: Scenario) -> None:
    """The same for an informer. The bookmarks are so rare that only the question whether the server is alive finds the silence in time."""
    with second(s) as other, second(s) as third:
        s.add(city(1))
        program = s.start("informer", deltaq_url=f"{s.proxy.url},{other.url},{third.url}", bookmark="1m")
        program.expect("synced")
        s.proxy.close()
        s.add(city(2))
        wait_for(lambda: store(program) == s.view(), "the informer goes on after the end of a server")
        other.is_silent = True
        s.add(city(3))
        wait_for(lambda: store(program) == s.view(), "the informer goes on after the silence of a server")
        check(len(third.calls("watch")) == 1, f"the third server has {len(third.calls('watch'))} watches")
        program.close_stdin()
        program.wait(0)
