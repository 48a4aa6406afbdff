#!/usr/bin/env python3
"""Opens the console of a server of its own in a headless Chromium.

    scripts/console.py BINARY measure [FOLDER]   first views and long tasks with 1,000 queues, 100,000 keys and an object of 0.9 MB that changes;
                                                 FOLDER has the queues, with a day of series: just bench-series 1440 1000 FOLDER
    scripts/console.py BINARY soak MINUTES       memory of the page of a queue that changes 1,000 times a second
    scripts/console.py BINARY pictures FOLDER    pictures of all views, in light and dark, at 1280 and 360 pixels
"""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from browser import Browser, call, free_port, until_it_listens

# The endpoint of a queue that pushes. Nothing listens there.
ENDPOINT = "http://127.0.0.1:9/labels"


class Queues:
    """Calls on the queues of a server."""

    def __init__(self, server):
        self.base = f"{server}/v1/queues/"

    def put(self, queue, config):
        call("PUT", self.base + queue, config)

    def post(self, path, body):
        return call("POST", self.base + path, body)

    def settle(self, queue, count, how, worker, error=None):
        items = self.post(f"{queue}/pop?max={count}&worker={worker}", {})["items"]
        if items:
            self.post(f"{queue}/{how}", {"lease_ids": [item["lease"]["id"] for item in items], **({"error": error} if error else {})})


class Work(threading.Thread):
    """Producers and workers, so that the pages move."""

    def __init__(self, queues, names, objects_each, pause, large=None):
        super().__init__(daemon=True)
        self.large = large
        self.queues, self.names, self.objects_each, self.pause = queues, names, objects_each, pause
        self.ends = threading.Event()

    def run(self):
        turn = 0
        while not self.ends.is_set():
            turn += 1
            if self.large and turn % 15 == 0:
                self.large["values"][5]["a"] = turn
                self.queues.post("large/update", self.large)
            for name in self.names:
                objects = [{"key": f"sku-{(turn * 37 + n * 11) % 400:04}", "price": (turn * 7 + n) % 90 + 0.5, "stock": n % 9, "vat": "19"} for n in range(self.objects_each)]
                self.queues.post(f"{name}/update?source=shop", objects)
                self.queues.settle(name, self.objects_each, "ack", f"importer-{turn % 3}")
            self.ends.wait(self.pause)


WATCH_LONG_TASKS = """window.longTasks = []; new PerformanceObserver(list => longTasks.push(...list.getEntries().map(task => task.duration))).observe({ type: 'longtask', buffered: true })"""


WATCH_FIRST_VIEW = """(() => {
    const observer = new MutationObserver(() => {
        if (!document.querySelector(%s)) return;
        window.firstView = performance.now();
        observer.disconnect();
    });
    observer.observe(document, { childList: true, subtree: true });
})()"""


def measure(browser, server, has_series):
    queues = Queues(server)
    for number in range(999):
        queues.post(f"queue-{number:03}/add", [{"key": "a"}, {"key": "b"}])
    for begin in range(0, 100_000, 10_000):
        queues.post("prices/add?source=erp", [{"key": f"sku-{begin + n:06}", "price": n + 0.25} for n in range(10_000)])
    large = {"key": "k", "values": [{"a": n, "b": str(n)} for n in range(36_000)]}
    queues.post("large/add", large)
    queues.settle("large", 1, "ack", "importer")
    work = Work(queues, ["prices"], 200, 0.2, large)
    work.start()
    views = [("queues", "tbody tr"), ("queues/prices", ".flow.wide .ready"), ("queues/prices/keys", "tbody tr"), ("queues/prices/keys/sku-050000", ".sentence"), ("queues/large/keys/k", ".sentence"), ("queues/prices/tail", ".tail li"), ("workers", ".state, tbody tr"), ("find?q=sku-050000", "tbody tr"), ("queues/prices/settings", ".field")]
    if has_series:
        views += [(f"{page}?range={hours}", ".chart path[d^=\"M\"]") for page in ("queues", "queues/queue-500") for hours in ("1h", "24h")]
    for place, content in views:
        watch = browser.devtools("Page.addScriptToEvaluateOnNewDocument", source=WATCH_FIRST_VIEW % json.dumps(content))
        browser.visit(f"{server}/console/#/{place}")
        browser.until("window.firstView")
        first = browser.js("return firstView")
        browser.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=watch["identifier"])
        browser.js(WATCH_LONG_TASKS)
        time.sleep(15)
        tasks = browser.js("return longTasks")
        print(f"{place}: content after {first:.0f} ms; {len(tasks)} long tasks, with 15 s live, the longest {max(tasks, default=0):.0f} ms", flush=True)
    work.ends.set()
    work.join()


def soak(browser, server, minutes):
    work = Work(Queues(server), ["prices"], 200, 0.2)
    work.start()
    browser.visit(f"{server}/console/#/queues/prices/tail")
    browser.until("document.querySelector('.tail li')")
    browser.devtools("Performance.enable")
    for minute in range(minutes + 1):
        browser.devtools("HeapProfiler.collectGarbage")
        metrics = {metric["name"]: metric["value"] for metric in browser.devtools("Performance.getMetrics")["metrics"]}
        shown = browser.js("return document.querySelector('.found').innerText")
        print(f"minute {minute}: {metrics['JSHeapUsedSize'] / 2**20:.1f} MiB of heap, {metrics['Nodes']:.0f} nodes; {shown}", flush=True)
        time.sleep(60 if minute < minutes else 0)
    work.ends.set()
    work.join()


def fill(queues):
    queues.put("prices", {"lease": "10m", "indexes": {"by_vat": "/vat"}, "rate_limiter": {"item_exponential": {"base": "10m", "max": "1h"}}})
    queues.put("search", {"follow": {"queue": "prices"}})
    queues.put("ledger.events", {"mode": "events"})
    prices = [{"key": f"sku-{n:04}", "price": round(3 + n * 0.37, 2), "stock": n % 7, "vat": "19"} for n in range(420)]
    queues.post("prices/replace?source=erp", prices)
    queues.settle("prices", 260, "ack", "importer-1")
    queues.settle("prices", 40, "reject", "importer-1", "PriceError: currency EU is unknown")
    queues.settle("prices", 25, "reject", "importer-1", "timeout after 30 s: POST https://erp.example/prices")
    queues.settle("prices", 6, "reject", "importer-1", "duplicate article 7")
    queues.settle("prices", 18, "nack", "importer-2", "503 Service Unavailable")
    queues.post("prices/pop?max=6&worker=importer-2", {})
    for name, added, done in [("stock", 120, 120), ("users", 35, 20), ("cache", 900, 880), ("mails", 300, 40), ("invoices", 64, 64), ("images", 77, 60)]:
        queues.post(f"{name}/add?source=shop", [{"key": f"{name}-{n}", "n": n} for n in range(added)])
        queues.settle(name, done, "ack", "importer-3")
    queues.post("ledger.events/add", [{"key": "account-1", "booking": n} for n in range(130)])
    queues.put("orders", {"groups": {"by": "/tenant", "max_leased": 4}})
    queues.post("orders/add?source=shop", [{"key": f"order-{n}", "tenant": tenant} for n, tenant in enumerate(["acme", "bolt", "acme", "cato", "acme", "bolt"] * 9)])
    queues.post("orders/pop?max=6&worker=packer-1", {})
    call("PATCH", queues.base + "prices/sources", {"sources": {"erp": {"stale_after": "15m"}}})
    call("PATCH", queues.base + "users/sources", {"sources": {"shop": {"stale_after": "1s"}}})
    queues.put("labels", {"push": {"url": ENDPOINT, "format": "raw"}})
    queues.post("labels/add", [{"key": f"label-{n}", "n": n} for n in range(12)])
    queues.post("users/pause", None)
    queues.post("invoices/close", None)


def report(queues):
    """The reports of two reflectors, one of which fails."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    beat = {"version": "0.1.0", "kind": "rest", "interval": "5m", "last_success_at": now, "next_list_at": now, "sent_at": now}
    queues.post("prices/reflectors", {**beat, "source": "erp", "instance": "reflect-1:211"})
    error = {"failing": True, "last_error": "GET https://crm.example/users: 503 Service Unavailable", "last_error_at": now, "next_list_at": None}
    queues.post("users/reflectors", {**beat, **error, "source": "crm", "instance": "reflect-2:187"})


# The pages with charts come last, when there are some minutes to show.
VIEWS = {
    "keys": "queues/prices/keys?state=parked", "key": "queues/prices/keys/sku-0265", "parked": "queues/prices/parked",
    "groups": "queues/orders/groups", "settings": "queues/prices/settings", "tail": "queues/stock/tail", "find": "find?q=sku-026", "sources": "sources", "reflectors": "reflectors",
    "workers": "workers", "endpoints": "endpoints", "nodes": "nodes", "activity": "activity", "queues": "queues", "queue": "queues/prices",
}


def pictures(browser, server, folder):
    queues = Queues(server)
    fill(queues)
    work = Work(queues, ["stock", "cache"], 9, 0.4)
    work.start()
    for name, place in VIEWS.items():
        report(queues)
        for width, height in [(1280, 900), (360, 780)]:
            for scheme in ["light", "dark"]:
                browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
                browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                browser.visit(f"{server}/console/#/{place}")
                time.sleep(5)
                # A page without content, such as one whose operation the server lacks, gets no picture.
                if browser.js("return document.querySelector('.view .state') === null"):
                    picture = browser.devtools("Page.captureScreenshot", format="webp", quality=80)["data"]
                    pathlib.Path(folder, f"{name}-{width}-{scheme}.webp").write_bytes(base64.b64decode(picture))
    work.ends.set()
    work.join()


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in ("measure", "soak", "pictures"):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data:
        server = f"127.0.0.1:{free_port()}"
        push = {"DELTAQ_PUSH__ALLOW": '["http://127.0.0.1:9"]', "DELTAQ_PUSH__ALLOW_NETWORKS": '["127.0.0.0/8"]'}
        if sys.argv[2] == "measure" and len(sys.argv) == 4:
            data = sys.argv[3]
        command = [sys.argv[1], "serve", "--listen", server, "--metrics-listen", "", "--data-dir", data, "--log-level", "off"]
        process = subprocess.Popen(command, env={**os.environ, **push})
        browser = None
        try:
            until_it_listens(f"http://{server}/readyz")
            browser = Browser()
            if sys.argv[2] == "measure":
                measure(browser, f"http://{server}", has_series=len(sys.argv) == 4)
            elif sys.argv[2] == "soak":
                soak(browser, f"http://{server}", int(sys.argv[3]))
            else:
                pictures(browser, f"http://{server}", sys.argv[3])
        finally:
            if browser:
                browser.close()
            process.terminate()
            process.wait()


main()
