#!/usr/bin/env python3
"""Runs the examples with the Python client against a server: examples.py URL. The client must be installed, or in PYTHONPATH."""

from __future__ import annotations

import http.server
import json
import os
import queue
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from proxy import Proxy, Refuse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Longest time for anything that is waited for, in seconds.
PATIENCE = 60.0
# Most lines of the price feed, without its comment: what the example promises.
PRICE_FEED_LINES_MAX = 15


class Program:
    """A running example. Its lines of stdout are in `lines`."""

    def __init__(self, script: str, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / script), *arguments],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.put(line.rstrip("\n"))

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.lines.get(timeout=PATIENCE)

    def stop(self) -> int:
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(PATIENCE)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"still not: {what}")
        time.sleep(0.02)


class Shop(http.server.ThreadingHTTPServer):
    """A shop with a price list, which fails when it has none."""

    prices: list[dict[str, Any]] | None = None
    replies = 0


class ShopRequest(http.server.BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        body = json.dumps(self.server.prices).encode()
        self.send_response(200 if self.server.prices is not None else 500)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.replies += 1

    def log_message(self, format: str, *args: object) -> None:
        pass


def expect(lines: queue.Queue[str], *expected: str) -> None:
    found = sorted(lines.get(timeout=PATIENCE) for _ in expected)
    if found != sorted(expected):
        sys.exit(f"the webhook has {found} instead of {sorted(expected)}")


def price_feed(url: str) -> None:
    shop = Shop(("127.0.0.1", 0), ShopRequest)
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as free:
        port = free.server_port
    webhook = Program("price-feed/webhook.py", str(port))
    shop.prices = json.loads((EXAMPLES / "price-feed/prices.json").read_text())
    proxy = Proxy()
    proxy.server_port = urlsplit(url).port or 80
    addresses = (f"http://127.0.0.1:{shop.server_port}/prices.json", f"http://127.0.0.1:{port}")
    feed = Program("price-feed/price_feed.py", *addresses, DELTAQ_URL=proxy.url, INTERVAL="0.05")
    expect(webhook.lines, "tea 4.5", "coffee 7", "cocoa 5.2")
    # The shop fails, and then answers with an empty list, and with one that no JSON can have: nothing is deleted.
    wrong_lists: list[list[dict[str, Any]] | None] = [None, [], [{"sku": "tea", "price": float("nan")}]]
    for wrong in wrong_lists:
        shop.prices = wrong
        seen = shop.replies
        # Of two replies, the second has begun after the change, and the third after the feed has dealt with it.
        wait_for(lambda: shop.replies >= seen + 3, "the feed has seen the wrong list")
    shop.prices = [{"sku": "tea", "price": 4.9}, {"sku": "coffee", "price": 7}]
    expect(webhook.lines, "tea 4.9", "cocoa deleted")
    if feed.stop() != 0:
        sys.exit("the price feed does not stop gracefully")
    # A token that becomes invalid ends the Reflector, and the whole feed says so.
    replaces = len(proxy.calls("replace"))
    feed = Program("price-feed/price_feed.py", *addresses, DELTAQ_URL=proxy.url, INTERVAL="0.05")
    wait_for(lambda: len(proxy.calls("replace")) > replaces, "the feed works")
    proxy.decide = lambda request: Refuse(401, "unauthorized") if request.call == "replace" else None
    if feed.wait() != 1:
        sys.exit("the price feed does not say that its Reflector has ended")
    proxy.close()
    webhook.stop()
    shop.shutdown()
    lines = (EXAMPLES / "price-feed/price_feed.py").read_text().splitlines()
    code = [line for line in lines if line and not line.startswith("#")]
    if len(code) > PRICE_FEED_LINES_MAX:
        sys.exit(f"the price feed has {len(code)} lines")


def cache(url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/shop.db"
        database = sqlite3.connect(path)
        database.execute("CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, city TEXT)")
        database.execute("INSERT INTO customers VALUES ('1', 'Ann', 'Rome'), ('2', 'Bob', 'Oslo'), ('3', 'Cid', 'Rome')")
        database.commit()
        follow = Program("cache/follow_table.py", path, DELTAQ_URL=url)
        lookup = Program("cache/lookup.py", DELTAQ_URL=url)
        wait_for(lambda: lookup.ask("Rome") == "Ann, Cid", "the cache has the table")
        database.execute("UPDATE customers SET city = 'Oslo' WHERE name = 'Cid'")
        database.execute("DELETE FROM customers WHERE name = 'Bob'")
        database.commit()
        wait_for(lambda: lookup.ask("Oslo") == "Cid", "the cache has the changes")
        if lookup.ask("Rome") != "Ann":
            sys.exit("the index of the cache is old")
        lookup.stop()
        follow.stop()
        database.close()


def rolling_restart(url: str) -> None:
    fleet = Program("rolling-restart/fleet.py", "--keys", "20", "--rounds", "4", DELTAQ_URL=url)
    line = fleet.lines.get(timeout=PATIENCE)
    if not line.startswith("81 changes, ") or not line.endswith("4 restarts: 0 lost, 0 done twice"):
        sys.exit(f"the fleet says: {line}")


if __name__ == "__main__":
    for example in (price_feed, cache, rolling_restart):
        began = time.monotonic()
        example(sys.argv[1])
        print(f"example {example.__name__} works ({time.monotonic() - began:.1f} s)", flush=True)
