#!/usr/bin/env python3
# price_feed.py LIST-URL WEBHOOK-URL: brings each change of a shop's price list to a webhook, once a minute.
import json, os, sys, threading, urllib.request
from deltaq import Client, Reflector, Worker, polled

def fetch():
    return json.load(urllib.request.urlopen(sys.argv[1], timeout=30))

def handle(item, context):
    change = {"sku": item.key, "price": None if item.is_deleted else item.object["price"], "token": context.token}
    urllib.request.urlopen(urllib.request.Request(sys.argv[2], json.dumps(change).encode()), timeout=30).close()

prices = Client(os.environ.get("DELTAQ_URL", "http://localhost:7070")).queue("shop")
prices.put_settings({"key": ["/sku"]})
failures = []
worker = Worker(prices, handle, concurrency=4)
threading.excepthook = lambda failure: (failures.append(failure.exc_value), worker.stop())
threading.Thread(target=Reflector(prices, "price-list").run, args=[polled(fetch, float(os.environ.get("INTERVAL", 60)))], daemon=True).start()
worker.run()
sys.exit(*failures)
