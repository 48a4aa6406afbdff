#!/usr/bin/env python3
"""The scenario program of the Python client: see tests/clients/README.md."""

from __future__ import annotations

import http.client
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from deltaq import (
    Ack,
    Change,
    Client,
    Context,
    DeletedFinalStateUnknown,
    Done,
    Error,
    Handler,
    Informer,
    Item,
    ListedItem,
    Nack,
    Page,
    Problem,
    Produced,
    Queue,
    QueueDeleted,
    Reflector,
    Reject,
    Release,
    Replace,
    RetryOptions,
    ViewObject,
    Worker,
    wait_for_cache_sync,
)

# Timeout for a reply of the target, in seconds.
TARGET_SECONDS = 30.0


def setting(name: str) -> str | None:
    return os.environ.get(name)


def retry_options() -> RetryOptions:
    attempts = setting("MAX_ATTEMPTS")
    return RetryOptions(attempts=int(attempts)) if attempts else RetryOptions()


def queue() -> Queue:
    client = Client(os.environ["DELTAQ_URL"], token=setting("DELTAQ_TOKEN"), token_file=setting("DELTAQ_TOKEN_FILE"), retry=retry_options())
    return client.queue(os.environ["DELTAQ_QUEUE"])


def report(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def describe(item: Item, context: Context) -> dict[str, Any]:
    """The body of the calls to the target."""
    newest = item.deltas[-1] if item.deltas else None
    return {
        "worker": os.environ["WORKER_NAME"],
        "key": item.key,
        "token": str(context.token),
        "attempt": item.attempt,
        "lease_id": context.lease.id,
        "versions": [str(delta.resource_version) for delta in item.deltas],
        "type": newest.type if newest else None,
        "object": newest.object if newest else None,
    }


def outcome(wanted: dict[str, Any]) -> Ack | Nack | Reject | Done | Release | None:
    """How the target wants the handler to end."""
    match wanted["as"]:
        case "nack":
            raise Nack(wanted.get("error"), delay=wanted.get("delay"), floor=wanted.get("floor", False))
        case "release":
            return Release(hold=wanted["hold"], hold_scope=wanted.get("hold_scope", "queue"))
        case "reject":
            return Reject(wanted.get("error"))
        case "done":
            return Done(delay=wanted.get("delay"))
        case "panic":
            raise RuntimeError(wanted["message"])
        case _:
            return Ack() if wanted.get("explicit") else None


connections = threading.local()


def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A call to the target, which is never repeated."""
    if not hasattr(connections, "target"):
        address = urlsplit(os.environ["TARGET_URL"]).netloc
        connections.target = http.client.HTTPConnection(address, timeout=TARGET_SECONDS)
    connections.target.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    reply = connections.target.getresponse()
    text = reply.read()
    if reply.status != 200:
        raise RuntimeError(f"the target replied {reply.status}: {text!r}")
    result: dict[str, Any] = json.loads(text)
    return result


def handle(item: Item, context: Context) -> Ack | Nack | Reject | Done | Release | None:
    body = describe(item, context)
    wanted = post("/start", body)
    if wanted.get("before_write"):
        return outcome(wanted)
    context.raise_if_lost()
    post("/write", body)
    return outcome(wanted)


def worker() -> None:
    Worker(
        queue(),
        handle,
        name=os.environ["WORKER_NAME"],
        concurrency=int(os.environ["CONCURRENCY"]),
        batch=int(os.environ["BATCH"]),
        breaker=int(os.environ["BREAKER"]) if "BREAKER" in os.environ else None,
        group=os.environ.get("GROUP"),
        lease_duration=setting("LEASE"),
        grace=10,
    ).run()


def commands() -> Iterator[dict[str, Any]]:
    """Yields the commands from standard input. SIGTERM ends the program with status 0."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for line in sys.stdin:
        yield json.loads(line)


def reporting_handler(number: int) -> Handler:
    def on_add(entry: ViewObject, is_in_initial_list: bool) -> None:
        report("add", handler=number, key=entry.key, object=entry.object, is_in_initial_list=is_in_initial_list)

    def on_update(old: ViewObject, new: ViewObject) -> None:
        report("update", handler=number, key=new.key, old=old.object, new=new.object)

    def on_delete(entry: ViewObject) -> None:
        unknown = isinstance(entry, DeletedFinalStateUnknown)
        report("delete", handler=number, key=entry.key, object=entry.object, final_state_unknown=unknown)

    return Handler(on_add, on_update, on_delete)


def informer() -> None:
    indexes = dict([index.split("=", 1)]) if (index := setting("INDEX")) else {}
    view = setting("VIEW") or "latest"
    cache = Informer(queue(), view=view, indexes=indexes, resync=setting("RESYNC"), bookmark=setting("BOOKMARK"))

    def add_handler(number: int) -> None:
        registration = cache.add_handler(reporting_handler(number))

        def wait() -> None:
            registration.wait_for_sync()
            report("synced", handler=number)

        threading.Thread(target=wait, daemon=True).start()

    add_handler(1)
    handlers = 1
    with cache:
        for command in commands():
            match command["command"]:
                case "store":
                    report("store", objects={entry.key: entry.object for entry in cache.store.list()})
                case "index":
                    found = cache.store.by_index(command["name"], command["value"])
                    report("index", keys=[entry.key for entry in found])
                case "get":
                    entry = cache.store.get(command["key"])
                    report("get", object=entry.object if entry else None)
                case "handler":
                    handlers += 1
                    add_handler(handlers)
                case "wait_for_sync":
                    wait_for_cache_sync(cache)
                    report("cache_synced")


def entry_of(command: dict[str, Any]) -> Replace | list[Change]:
    """The list or the changes of a command."""
    if command["command"] == "list":
        return Replace(command["objects"])
    return [Change(delta["type"], delta.get("object"), delta.get("key")) for delta in command["deltas"]]


def reflector() -> None:
    source = Reflector(queue(), os.environ["SOURCE"])
    for command in commands():
        try:
            reply = source.apply(entry_of(command))
            report("applied", duplicate=reply.duplicate, invalid=reply.invalid)
        except Problem as problem:
            report("refused", code=problem.code)
        except QueueDeleted:
            report("lost")


def produce() -> None:
    target = queue()
    for command in commands():
        number = command.get("sequence")
        source = setting("SOURCE") if number else None
        try:
            reply = produce_once(target, command, source, int(number) if number else None)
            report("reply", queued=reply.queued if reply else 0, duplicate=reply.duplicate if reply else False)
        except Problem as problem:
            report("error", code=problem.code, status=problem.status, retryable=problem.is_retryable)
        except Error as error:
            report("error", code=None, status=None, retryable=error.is_retryable)


def produce_once(target: Queue, command: dict[str, Any], source: str | None, sequence: int | None) -> Produced | None:
    match command["command"]:
        case "add":
            return target.add(command["objects"], source=source, sequence=sequence)
        case "update":
            return target.update(command["objects"], source=source, sequence=sequence)
        case "delete":
            return target.delete_key(command["key"], source=source, sequence=sequence)
        case "purge":
            target.purge()
            return None
        case "remove":
            target.delete_queue()
            return None
        case _:
            return target.replace(command["objects"], source=source, sequence=sequence)


def read() -> None:
    target = queue()
    for command in commands():
        found = {"key": None, "object": None}
        try:
            found = read_once(target, command["command"], command["key"])
        except Problem as problem:
            if problem.code != "key-not-found":
                raise
        report("read", **found)


def read_once(target: Queue, call: str, key: str) -> dict[str, Any]:
    match call:
        case "item":
            return describe_item(target.item(key))
        case "latest":
            return describe_object(target.latest_object(key))
        case "known":
            return describe_object(target.known_object(key))
        case "explain":
            return {"key": target.explain(key)["key"], "object": None}
        case _:
            return describe_history(target.history(key))


def describe_item(item: ListedItem) -> dict[str, Any]:
    return {"key": item.key, "object": item.deltas[-1].object}


def describe_object(found: ViewObject) -> dict[str, Any]:
    return {"key": found.key, "object": found.object}


def describe_history(page: Page[dict[str, Any]]) -> dict[str, Any]:
    objects = [event["object"] for event in page.items if event["event"] == "appended"]
    return {"key": None, "object": objects[0] if objects else None}


def main() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    subcommands = {"worker": worker, "informer": informer, "reflector": reflector, "produce": produce, "read": read}
    try:
        subcommands[sys.argv[1]]()
    except Error as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
