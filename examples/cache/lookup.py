#!/usr/bin/env python3
# lookup.py: prints the names of the customers of each city that it reads, from a cache in memory that is in step with the database.
import os, sys
from deltaq import Client, Handler, Informer

client = Client(os.environ.get("DELTAQ_URL", "http://localhost:7070"))
customers = Informer(client.queue("customers"), indexes={"by_city": "/city"})
customers.add_handler(Handler(on_delete=lambda entry: print(f"{entry.object['name']} has left", file=sys.stderr)))
with customers:
    customers.wait_for_sync()
    for city in sys.stdin:
        names = [entry.object["name"] for entry in customers.store.by_index("by_city", city.strip())]
        print(", ".join(names) or "nobody", flush=True)
