#!/usr/bin/env python3
"""The scenario program of the Python client for asyncio: see tests/clients/README.md. What both programs share is in program.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
from program import (
    TARGET_SECONDS,
    describe,
    describe_history,
    describe_item,
    describe_object,
    entry_of,
    outcome,
    report,
    reporting_handler,
    retry_options,
    setting,
)

from deltaq import Ack, Context, Done, Error, Item, Nack, Problem, Produced, QueueDeleted, Reject, Release
from deltaq.aio import Client, Informer, Queue, Reflector, Worker, wait_for_cache_sync

# Maximum length of a line of standard input, in bytes.
LINE_BYTES_MAX = 2**26


async def commands() -> AsyncIterator[dict[str, Any]]:
    """Yields the commands from standard input."""
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def worker(queue: Queue) -> None:
    async with httpx.AsyncClient(base_url=os.environ["TARGET_URL"], timeout=TARGET_SECONDS) as target:

        async def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
            """A call to the target, which is never repeated."""
            reply = await target.post(path, json=body)
            if reply.status_code != 200:
                raise RuntimeError(f"the target replied {reply.status_code}: {reply.text}")
            result: dict[str, Any] = reply.json()
            return result

        async def handle(item: Item, context: Context) -> Ack | Nack | Reject | Done | Release | None:
            body = describe(item, context)
            wanted = await post("/start", body)
            if not wanted.get("before_write"):
                await post("/write", body)
            return outcome(wanted)

        await Worker(
            queue,
            handle,
            name=os.environ["WORKER_NAME"],
            concurrency=int(os.environ["CONCURRENCY"]),
            batch=int(os.environ["BATCH"]),
            breaker=int(os.environ["BREAKER"]) if "BREAKER" in os.environ else None,
            group=os.environ.get("GROUP"),
            lease_duration=setting("LEASE"),
            grace=10,
        ).run()


async def informer(queue: Queue) -> None:
    indexes = dict([index.split("=", 1)]) if (index := setting("INDEX")) else {}
    view = setting("VIEW") or "latest"
    cache = Informer(queue, view=view, indexes=indexes, resync=setting("RESYNC"), bookmark=setting("BOOKMARK"))
    waits: list[asyncio.Task[None]] = []

    async def add_handler() -> None:
        number = len(waits) + 1
        registration = await cache.add_handler(reporting_handler(number))

        async def wait() -> None:
            await registration.wait_for_sync()
            report("synced", handler=number)

        waits.append(asyncio.create_task(wait()))

    await add_handler()
    async with cache:
        async for command in commands():
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
                    await add_handler()
                case "wait_for_sync":
                    await wait_for_cache_sync(cache)
                    report("cache_synced")


async def reflector(queue: Queue) -> None:
    source = Reflector(queue, os.environ["SOURCE"])
    async for command in commands():
        try:
            reply = await source.apply(entry_of(command))
            report("applied", duplicate=reply.duplicate, invalid=reply.invalid)
        except Problem as problem:
            report("refused", code=problem.code)
        except QueueDeleted:
            report("lost")


async def produce(queue: Queue) -> None:
    async for command in commands():
        number = command.get("sequence")
        source = setting("SOURCE") if number else None
        try:
            reply = await produce_once(queue, command, source, int(number) if number else None)
            report("reply", queued=reply.queued if reply else 0, duplicate=reply.duplicate if reply else False)
        except Problem as problem:
            report("error", code=problem.code, status=problem.status, retryable=problem.is_retryable)
        except Error as error:
            report("error", code=None, status=None, retryable=error.is_retryable)


async def produce_once(queue: Queue, command: dict[str, Any], source: str | None, sequence: int | None) -> Produced | None:
    match command["command"]:
        case "add":
            return await queue.add(command["objects"], source=source, sequence=sequence)
        case "update":
            return await queue.update(command["objects"], source=source, sequence=sequence)
        case "delete":
            return await queue.delete_key(command["key"], source=source, sequence=sequence)
        case "purge":
            await queue.purge()
            return None
        case "remove":
            await queue.delete_queue()
            return None
        case _:
            return await queue.replace(command["objects"], source=source, sequence=sequence)


async def read(queue: Queue) -> None:
    async for command in commands():
        found = {"key": None, "object": None}
        try:
            found = await read_once(queue, command["command"], command["key"])
        except Problem as problem:
            if problem.code != "key-not-found":
                raise
        report("read", **found)


async def read_once(queue: Queue, call: str, key: str) -> dict[str, Any]:
    match call:
        case "item":
            return describe_item(await queue.item(key))
        case "latest":
            return describe_object(await queue.latest_object(key))
        case "known":
            return describe_object(await queue.known_object(key))
        case "explain":
            return {"key": (await queue.explain(key))["key"], "object": None}
        case _:
            return describe_history(await queue.history(key))


async def main() -> None:
    subcommand = {"worker": worker, "informer": informer, "reflector": reflector, "produce": produce, "read": read}[sys.argv[1]]
    async with Client(os.environ["DELTAQ_URL"], token=setting("DELTAQ_TOKEN"), token_file=setting("DELTAQ_TOKEN_FILE"), retry=retry_options()) as client:
        task = asyncio.create_task(subcommand(client.queue(os.environ["DELTAQ_QUEUE"])))
        if sys.argv[1] != "worker":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    try:
        asyncio.run(main())
    except Error as error:
        sys.exit(f"{type(error).__name__}: {error}")
