#!/usr/bin/env python3
# follow_table.py DATABASE: sends the table `customers` of a SQLite database to the queue `customers` whenever the database has changed.
import os, sqlite3, sys, time
from deltaq import Client, Reflector, Replace


def lists():
    database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    seen = None
    while True:
        version = database.execute("PRAGMA data_version").fetchone()[0]
        if version != seen:
            seen = version
            yield Replace([dict(row) for row in database.execute("SELECT id AS key, name, city FROM customers")])
        time.sleep(0.5)


client = Client(os.environ.get("DELTAQ_URL", "http://localhost:7070"))
Reflector(client.queue("customers"), "database").run(lists())
